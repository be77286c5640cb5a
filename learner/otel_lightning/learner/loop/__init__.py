"""`lightning-learn loop`: run, grade, learn, judge and deploy, round after round."""
