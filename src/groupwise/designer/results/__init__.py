"""What a search returns, and how people see it.

outcome      the numbers of a finished search: designs, generations, times of the stages
course       where candidates came from, and how diverse the generations were
explanation  the design compared with a baseline, in words
report       the report on a terminal and as a page
figures      its figures
"""
