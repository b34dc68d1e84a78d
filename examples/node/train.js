// Train from artifacts without Python, and print the loss of every step as JSON.
//
//   npm install --ignore-scripts        (here, once; the runtime for CPUs is part of the package)
//   node train.js FOLDER BATCHES.json [LEARNING_RATE]
//
// FOLDER is what generate_artifacts wrote.  BATCHES.json is a list of { input name: { dims, data } }.

import { readFile } from "node:fs/promises";
import { argv } from "node:process";
import { Trainer } from "./trainer.js";

const [folder, batches, learningRate = "0.001"] = argv.slice(2);
const trainer = await Trainer.open(folder);
trainer.learningRate = Number(learningRate);
const losses = [];
const loaded = JSON.parse(await readFile(batches, "utf8")).map((arrays) => trainer.batch(arrays));
for (const batch of loaded) {
  losses.push(await trainer.train(batch));
  await trainer.step();
}
console.log(JSON.stringify({ losses, evaluation: await trainer.evaluate(loaded[0]) }));
