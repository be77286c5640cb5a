"""The commands of `lightning-learn`, one file each. They only parse options and print reports."""
