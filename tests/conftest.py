"""What all tests share: a hypothesis profile whose examples are the same in every run.

``ROOFLINELLM_HYPOTHESIS=thorough`` draws others, twenty-five times as many, where a test does not say how many.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "deterministic",
    derandomize=True,
    database=None,
    deadline=None,  # the first example of a test loads databases
    max_examples=40,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", parent=settings.get_profile("deterministic"), derandomize=False, max_examples=1000
)
settings.load_profile(os.environ.get("ROOFLINELLM_HYPOTHESIS", "deterministic"))
