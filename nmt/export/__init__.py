"""A trained run in the formats that other programs read: one module a format.

Each module has `write(run, directory)`, which fills an empty directory and returns how to use it, as Markdown, and
`LIBRARY`, the program's name on the Hub, or None. It raises UserError where the format cannot hold the model.
"""

# What each format needs beside this package
NEEDS = {
    "ctranslate2": ("ctranslate2",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "safetensors": ("safetensors",),
    "transformers": ("transformers", "tokenizers"),
}
