"""The softmax policy: logged choices as arrays, objectives, gradient ascent, reward models.

Begin in `contextual.py`; `choice_arrays.py` has the arrays, and `features.py` reads the features of
the inputs. All others are pure numpy.
"""
