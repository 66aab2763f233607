"""What the estimators share: stores, data, back ends, parameters."""
