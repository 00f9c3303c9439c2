"""Write a trained run for CTranslate2, Argos, transformers or ONNX, as plain safetensors, or as a web page."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("export")
