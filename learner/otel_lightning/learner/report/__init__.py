"""`lightning-learn report`: one HTML file about one learning run."""
