"""An export pushed to the Hugging Face Hub."""

from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from nmt.errors import UserError


def check(name: str) -> None:
    """Raise UserError without a token, before any work."""
    if huggingface_hub.get_token() is None:
        raise UserError(f"push={name} needs a token of the Hub: run `hf auth login`, or set HF_TOKEN")


def push(directory: Path, name: str) -> str:
    """Upload a directory as the model `name`, USER/NAME, which is made where it is missing; returns its address.

    Raises UserError where the Hub cannot be reached or refuses.
    """
    hub = huggingface_hub.HfApi()
    try:
        hub.create_repo(name, exist_ok=True)
        return str(hub.upload_folder(repo_id=name, folder_path=directory, commit_message="Export"))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        said = " ".join(str(error).split())
    except Exception as error:  # of the client's own library of requests, which changes with its version
        if type(error).__module__.split(".")[0] not in (
            "httpx",
            "httpx2",
            "httpcore",
            "httpcore2",
            "requests",
        ):
            raise
        said = " ".join(str(error).split())
    raise UserError(f"push={name}: {said}; {directory} is whole, it can be pushed by hand with `hf upload`")
