"""Pages: who owns which, what is shared, and what is given up first."""

import numpy as np

from groupwise.language.engine.cuda.pages import Pages, page_keys

SIZE = 4


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int64)


def test_a_key_covers_everything_up_to_the_end_of_its_page() -> None:
    one, other = page_keys(ids(*range(9)), SIZE), page_keys(ids(7, *range(1, 9)), SIZE)
    assert len(one) == len(other) == 2
    assert one[0] != other[0]
    # The second pages hold the same tokens after different ones.
    assert one[1] != other[1]


def test_a_beginning_is_found_as_far_as_it_agrees() -> None:
    pages = Pages(8, SIZE)
    mine = pages.take([], 3)
    assert mine is not None
    pages.publish(mine, page_keys(ids(*range(12)), SIZE))
    assert pages.beginning(page_keys(ids(*range(8), 99, 99, 99, 99), SIZE)) == mine[:2]
    assert pages.beginning(page_keys(ids(99, *range(1, 12)), SIZE)) == []


def test_a_shared_page_stays_until_its_last_user_leaves() -> None:
    pages = Pages(3, SIZE)
    first = pages.take([], 2)
    assert first is not None
    second = pages.take(first[:1], 1)
    assert second is not None
    assert pages.available == 0
    pages.give_back(first)
    assert pages.available == 1
    pages.give_back(second)
    assert pages.available == 3


def test_too_few_pages_change_nothing() -> None:
    pages = Pages(2, SIZE)
    kept = pages.take([], 1)
    assert kept is not None
    pages.publish(kept, page_keys(ids(1, 2, 3, 4), SIZE))
    pages.give_back(kept)
    # The idle page would be used and be needed for the new ones at the same time.
    assert pages.take(kept, 2) is None
    assert pages.available == 2
    assert pages.take(kept, 1) is not None


def test_the_oldest_idle_pages_are_given_up_first_and_the_end_before_the_beginning() -> None:
    pages = Pages(3, SIZE)
    text = page_keys(ids(*range(12)), SIZE)
    mine = pages.take([], 3)
    assert mine is not None
    pages.publish(mine, text)
    pages.give_back(mine)
    assert pages.take([], 1) == [mine[2]]
    assert pages.beginning(text) == mine[:2]


def test_new_weights_make_every_page_unknown_and_more_room_makes_more_pages() -> None:
    pages = Pages(1, SIZE)
    mine = pages.take([], 1)
    assert mine is not None
    keys = page_keys(ids(1, 2, 3, 4), SIZE)
    pages.publish(mine, keys)
    pages.forget()
    assert pages.beginning(keys) == []
    pages.grow(3)
    assert len(pages) == 3
    assert pages.take([], 2) == [1, 2]
    pages.give_back(mine)
    assert pages.available == 1
