// Train from artifacts without Python, and print the loss of every step as JSON.
//
//   npm install --ignore-scripts        (here, once; the runtime for CPUs is part of the package)
//   node train.js FOLDER BATCHES.json [LEARNING_RATE] [fused]
//
// FOLDER is what generate_artifacts wrote.  BATCHES.json is a list of { input name: { dims, data } }.  With `fused` it
// trains with the step model, which generate_artifacts(..., fused_step=True) wrote.

import { readFile } from "node:fs/promises";
import { argv, exit } from "node:process";
import { FusedTrainer, Trainer } from "./trainer.js";

const [folder, batches, learningRate = "0.001", form] = argv.slice(2);
if (!folder || !batches) {
  console.error("node train.js FOLDER BATCHES.json [LEARNING_RATE] [fused]");
  exit(2);
}
const trainer = await (form === "fused" ? FusedTrainer : Trainer).open(folder);
trainer.learningRate = Number(learningRate);
const losses = [];
const loaded = JSON.parse(await readFile(batches, "utf8")).map((arrays) => trainer.batch(arrays));
for (const batch of loaded) losses.push(await trainer.step(batch));
console.log(JSON.stringify({ losses, evaluation: await trainer.evaluate(loaded[0]) }));
