"""Upload of an export to the Hugging Face Hub."""

from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HTTPError  # of the client's HTTP library, which depends on its version

from nmt.errors import UserError


def check_token(name: str) -> None:
    """Raise UserError if there is no token. Called before the export."""
    if huggingface_hub.get_token() is None:
        raise UserError(f"push={name} needs a token of the Hub: run `hf auth login`, or set HF_TOKEN")


def push(directory: Path, name: str) -> str:
    """Upload a directory as the model `name` (USER/NAME), created if missing; return its URL.

    Raises UserError if the Hub cannot be reached or refuses.
    """
    hub = huggingface_hub.HfApi()
    try:
        hub.create_repo(name, exist_ok=True)
        return str(hub.upload_folder(repo_id=name, folder_path=directory, commit_message="Export"))
    except (HTTPError, ValueError, OSError) as error:
        said = " ".join(str(error).split())
        raise UserError(
            f"push={name}: {said}; {directory} is whole, it can be pushed by hand with `hf upload`"
        ) from error
