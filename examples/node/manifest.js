// The manifest of an artifact: what each of its inputs and outputs is for.
// It stands in the model's metadata, which the runtime for JavaScript does not show, so it is read from the file.

const METADATA_FIELD = 14; // ModelProto.metadata_props, of the ONNX specification
const VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5; // wire types of Protocol Buffers

/** The fields of a Protocol Buffers message: number and, where it has a length, content. */
function* fields(bytes) {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes[at++];
      value += (byte % 128) * scale; // not shifted: lengths may need more than 32 bits
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const number = Math.floor(tag / 8), wire = tag % 8;
    if (wire === BYTES) {
      const length = varint();
      yield { number, content: bytes.subarray(at, at + length) };
      at += length;
    } else if (wire === VARINT) {
      varint();
    } else if (wire === FIXED64 || wire === FIXED32) {
      at += wire === FIXED64 ? 8 : 4;
    } else {
      throw new Error(`not an ONNX model: wire type ${wire}`);
    }
  }
}

/** The manifest in the bytes of a model file. */
export function readManifest(bytes) {
  for (const { number, content } of fields(bytes)) {
    if (number !== METADATA_FIELD) continue;
    const [key, value] = [...fields(content)].map((field) => new TextDecoder().decode(field.content));
    if (key === "onnxblock.manifest") {
      const manifest = JSON.parse(value);
      if (manifest.version !== 1) throw new Error(`manifest of version ${manifest.version}`);
      return manifest;
    }
  }
  throw new Error("the model has no manifest: generate the artifacts with onnxblock");
}
