"""Read the attributes of spans: typed values, flattened messages, and plans per shape of a span."""
