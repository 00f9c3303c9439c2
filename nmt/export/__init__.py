"""Export of a trained run to the formats of other programs: one module per format.

Each module has `write(run, directory)` (`web`: `write(runs, directory)`), which fills an empty directory and returns
usage instructions in Markdown, and
`LIBRARY`, the library's name on the Hub or None. `write` raises UserError if the format does not support the model.
"""

# The packages that each format needs
NEEDS = {
    "argos": ("ctranslate2",),
    "ctranslate2": ("ctranslate2",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "safetensors": ("safetensors",),
    "transformers": ("transformers", "tokenizers"),
    "web": ("onnx", "onnxscript", "onnxruntime"),
}
