"""What the stages share: the Hugging Face trainer and its directory."""
