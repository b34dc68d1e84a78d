"""What is to be reached, as data; times are ratios over rounds, memory is a ratio of peaks."""

from __future__ import annotations

from dataclasses import dataclass

from .engines import FOREACH, ONNXSIM, ORIGINAL, TORCH

# Train step against PyTorch eager, in its faster memory format.
STEP_AGAINST_EAGER = {
    "mlp": 1.0,
    "cnn": 1.5,
    "resnet18": 1.3,
    "mobilenetv2": 2.5,
    "transformer": 1.0,
    "bert": 1.0,
    "gpt2": 1.0,
    "lstm": 1.0,
    "head": 1.0,
}
# Train step of every workload against these, where they run.
STEP_AGAINST_OTHERS = {ORIGINAL: 0.9, ONNXSIM: 0.9}
# Peak memory against the original where it runs, else against PyTorch eager.
MEMORY_AGAINST_ORIGINAL, MEMORY_AGAINST_EAGER = 1.0, 0.7
# The optimizer step alone, at every size.
OPTIMIZER_AGAINST = {TORCH: 2.5, FOREACH: 1.0}


@dataclass(frozen=True)
class Limit:
    """A figure of the generation part, and the most it may be."""

    figure: str
    title: str
    most: float
    unit: str = ""


GENERATION = (
    Limit("resnet50_graphs", "generate_artifacts, ResNet-50, without the weights' bytes", 2.0, "s"),
    Limit("bert_graphs", "generate_artifacts, BERT-base of 12 layers, without the weights' bytes", 2.0, "s"),
    Limit("flatness", "time per node at 20,000 nodes, of that at 2,500", 1.25, "×"),
    Limit("resnet50_writing", "writing the weights of ResNet-50, of a plain copy", 1.5, "×"),
    Limit("bert_writing", "writing the weights of BERT-base, of a plain copy", 1.5, "×"),
    Limit("idle_nodes", "nodes that change nothing, transformer, functions inlined", 0, ""),
    Limit("node_ratio", "nodes of the training graph, of its forward part, transformer", 3.0, "×"),
    Limit("import_api", "import artifacts.api, over import onnxruntime", 0.1, "s"),
    Limit("import_onnxblock", "import onnxblock", 1.0, "s"),
)
