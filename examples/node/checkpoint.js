// The parameters in a checkpoint, which is a FlatBuffer; onnxblock/checkpoint/README.md gives its layout.

const STATE = 1; // field of the root
const TRAINED = 0, FROZEN = 1; // fields of the state
const NAME = 0, DIMS = 2, DATA_TYPE = 3, RAW_DATA = 4; // fields of a tensor

/** ONNX element types: name, and the array that holds them. */
const ELEMENT_TYPES = {
  1: ["float32", Float32Array],
  2: ["uint8", Uint8Array],
  3: ["int8", Int8Array],
  6: ["int32", Int32Array],
  7: ["int64", BigInt64Array],
  9: ["bool", Uint8Array],
  11: ["float64", Float64Array],
};

class Table {
  constructor(view, at) {
    this.view = view;
    this.at = at;
  }

  /** Where a field stands, or nothing if the table leaves it out. */
  field(slot) {
    const vtable = this.at - this.view.getInt32(this.at, true);
    const entry = 4 + 2 * slot;
    if (entry >= this.view.getUint16(vtable, true)) return undefined;
    return this.at + this.view.getUint16(vtable + entry, true) || undefined;
  }

  /** Where the thing stands that a field refers to. */
  target(slot) {
    const at = this.field(slot);
    return at === undefined ? undefined : at + this.view.getUint32(at, true);
  }

  table(slot) {
    return new Table(this.view, this.target(slot));
  }

  /** Start and length of a vector; an absent one is empty. */
  vector(slot) {
    const at = this.target(slot);
    return at === undefined ? { start: 0, length: 0 } : { start: at + 4, length: this.view.getUint32(at, true) };
  }

  bytes(slot) {
    const { start, length } = this.vector(slot);
    return new Uint8Array(this.view.buffer, this.view.byteOffset + start, length);
  }

  *tables(slot) {
    const { start, length } = this.vector(slot);
    for (let at = start; at < start + 4 * length; at += 4) {
      yield new Table(this.view, at + this.view.getUint32(at, true));
    }
  }
}

/** How many elements a tensor has. */
export const sizeOf = (dims) => dims.reduce((product, dim) => product * dim, 1);

/** The parameters in the bytes of a checkpoint: by name, `{ dtype, data, dims }`. */
export function readCheckpoint(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (new TextDecoder().decode(bytes.subarray(4, 8)) !== "ODTC") throw new Error("not a checkpoint");
  const state = new Table(view, view.getUint32(0, true)).table(STATE);
  const parameters = new Map();
  for (const list of [TRAINED, FROZEN]) {
    for (const tensor of state.tables(list)) {
      const [dtype, ArrayType] = ELEMENT_TYPES[view.getInt32(tensor.field(DATA_TYPE), true)];
      const { start, length } = tensor.vector(DIMS);
      const dims = Array.from({ length }, (_, k) => Number(view.getBigInt64(start + 8 * k, true)));
      const raw = tensor.bytes(RAW_DATA).slice(); // a copy, because elements may be misaligned in the file
      const name = new TextDecoder().decode(tensor.bytes(NAME));
      if (raw.length !== sizeOf(dims) * ArrayType.BYTES_PER_ELEMENT) {
        throw new Error(`the data of ${name} is not in this file`);
      }
      parameters.set(name, { dtype, data: new ArrayType(raw.buffer), dims });
    }
  }
  return parameters;
}

const arrayType = (dtype) => Object.values(ELEMENT_TYPES).find(([name]) => name === dtype)[1];
const numberIn = (ArrayType) => (ArrayType === BigInt64Array ? BigInt : Number);

/** Plain numbers as an array of a type. */
export function arrayOf(dtype, numbers) {
  const ArrayType = arrayType(dtype);
  return ArrayType.from(numbers, numberIn(ArrayType));
}

/** An array of `size` elements of a type, filled with `value`. */
export function filled(dtype, size, value) {
  const ArrayType = arrayType(dtype);
  return new ArrayType(size).fill(numberIn(ArrayType)(value));
}
