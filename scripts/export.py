"""Write a trained run for CTranslate2, transformers or ONNX, or as plain safetensors."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("export")
