"""Values that attributes hold as text: JSON, or the `repr()` of Python objects."""
