"""`lightning-learn policy`: a softmax policy over the arms of a feature flag."""
