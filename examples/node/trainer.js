// Training from artifacts: each input is fed by its role in the manifest, and after each run every state's output
// becomes the input it belongs to.  Nothing here knows the model, its loss or its optimizer.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import ort from "onnxruntime-node";
import { arrayOf, filled, readCheckpoint, sizeOf } from "./checkpoint.js";
import { readManifest } from "./manifest.js";

const tensor = (dtype, data, dims) => new ort.Tensor(dtype, data, dims);

/** What an input takes of a tensor, without a copy: all of it, or a slice of its elements. */
const partOf = (whole, { offset, shape }) =>
  offset === undefined
    ? whole
    : tensor(whole.type, whole.data.subarray(offset, offset + sizeOf(shape)), shape);

const PARAMETERS = new Set(["parameter", "frozen", "statistic"]);

/** A model with its manifest. */
class Model {
  static async open(path) {
    const model = new Model();
    model.manifest = readManifest(await readFile(path));
    if (model.manifest.inputs.some((input) => input.role === "parameters")) {
      throw new Error(`${path} takes sequences: generate the artifacts with runtime="onnxruntime"`);
    }
    model.session = await ort.InferenceSession.create(path);
    return model;
  }

  /** Feed what `value` gives for each input, keep the new states, and return the outputs. */
  async run(states, value) {
    const feeds = {};
    for (const input of this.manifest.inputs) feeds[input.name] = value(input);
    const results = await this.session.run(feeds);
    const byName = new Map(this.manifest.inputs.map((input) => [input.name, input]));
    for (const pair of this.manifest.state) {
      const { role, offset, parameter } = byName.get(pair.input);
      if (role === "parameter" && offset !== undefined) {
        states.get(parameter).data.set(results[pair.output].data, offset);
      } else {
        states.set(pair.input, results[pair.output]);
      }
    }
    return results;
  }

  get loss() {
    return this.manifest.outputs[0].name;
  }
}

/** What both ways of training have in common: the states, the evaluation model, the learning rate. */
class States {
  /** Open the files that `generate_artifacts` wrote to `folder`. */
  static async open(folder) {
    const trainer = new this();
    trainer.states = new Map(); // parameters, gradients and moments, by the name of the input they feed
    trainer.steps = 0;
    trainer.learningRate = 0.001;
    for (const [name, { dtype, data, dims }] of readCheckpoint(await readFile(join(folder, "checkpoint")))) {
      trainer.states.set(name, tensor(dtype, data, dims));
    }
    trainer.evaluation = await Model.open(join(folder, "eval_model.onnx"));
    await trainer.openTraining(folder);
    return trainer;
  }

  /** Give the states of a model that are not in the checkpoint the values they start with. */
  start({ inputs, state }) {
    const byName = new Map(inputs.map((input) => [input.name, input]));
    for (const { input, initial } of state) {
      const port = byName.get(input);
      if (this.states.has(input) || port.role === "parameter") continue;
      const { dtype, shape, parameter } = port;
      if (initial.kind === "parameter") {
        const { type, data, dims } = partOf(this.states.get(initial.parameter), port);
        this.states.set(input, tensor(type, data.slice(), dims));
        continue;
      }
      const dims = shape ?? this.states.get(parameter).dims;
      const value = { zeros: 0, ones: 1, constant: initial.value }[initial.kind];
      this.states.set(input, tensor(dtype, filled(dtype, sizeOf(dims), value), dims));
    }
  }

  /** What feeds an input that takes a number of the step or a state. */
  value(input) {
    if (input.role === "learning_rate") {
      return tensor("float32", Float32Array.of(this.learningRate * (input.scale ?? 1)), [1]);
    }
    if (input.role === "step") return tensor("int64", BigInt64Array.of(BigInt(this.steps + 1)), [1]);
    if (input.role === "parameter") return partOf(this.states.get(input.parameter ?? input.name), input);
    return this.states.get(input.name);
  }

  /** The loss of the evaluation model on a batch. */
  async evaluate(batch) {
    const results = await this.evaluation.run(this.states, (input) =>
      PARAMETERS.has(input.role) ? this.states.get(input.name) : batch[input.name],
    );
    return results[this.evaluation.loss].data[0];
  }

  /** A batch of plain numbers, `{ name: { dims, data } }`, as tensors of the types that the model takes. */
  batch(arrays) {
    const made = {};
    for (const { name, role, dtype } of this.training.manifest.inputs) {
      if (role !== "user") continue;
      if (!(name in arrays)) {
        const given = Object.keys(arrays).join(", ");
        throw new Error(`the batch has no input "${name}" (${dtype}); it has: ${given}`);
      }
      const { dims, data } = arrays[name];
      made[name] = tensor(dtype, arrayOf(dtype, data), dims);
    }
    return made;
  }
}

/** Training with two models: gradients are added up by one and applied by the other. */
export class Trainer extends States {
  async openTraining(folder) {
    this.training = await Model.open(join(folder, "training_model.onnx"));
    this.optimizer = await Model.open(join(folder, "optimizer_model.onnx"));
    this.start(this.training.manifest);
    this.start(this.optimizer.manifest);
    this.reset = false;
  }

  /** Run the training model on a batch, `{ name: Tensor }`: the gradients are added up; returns the loss. */
  async accumulate(batch) {
    const results = await this.training.run(this.states, (input) => {
      if (input.role === "user") return batch[input.name];
      if (input.role === "reset") return tensor("bool", Uint8Array.of(this.reset), [1]);
      return this.states.get(input.name);
    });
    this.reset = false;
    return results[this.training.loss].data[0];
  }

  /** Update the parameters; the next gradients replace these. */
  async apply() {
    const buffers = this.training.manifest.inputs.filter((input) => input.role === "gradient_buffer");
    const gradientOf = new Map(buffers.map((input) => [input.parameter, input.name]));
    await this.optimizer.run(this.states, (input) =>
      input.role === "gradient"
        ? partOf(this.states.get(gradientOf.get(input.parameter)), input)
        : this.value(input),
    );
    this.steps += 1;
    this.reset = true;
  }

  /** One step on one batch; returns the loss before it. */
  async step(batch) {
    const loss = await this.accumulate(batch);
    await this.apply();
    return loss;
  }
}

/** Training with the one model of `generate_artifacts(..., fused_step=True)`. */
export class FusedTrainer extends States {
  async openTraining(folder) {
    this.training = await Model.open(join(folder, "step_model.onnx"));
    this.start(this.training.manifest);
  }

  /** One step on one batch; returns the loss before it. */
  async step(batch) {
    const results = await this.training.run(this.states, (input) =>
      input.role === "user" ? batch[input.name] : this.value(input),
    );
    this.steps += 1;
    return results[this.training.loss].data[0];
  }
}
