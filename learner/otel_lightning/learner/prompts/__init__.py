"""`lightning-learn prompts`: let a model propose new variants of a prompt, and try them."""
