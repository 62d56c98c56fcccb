"""Rates and meaning of the edits, against binomial bounds and WordNet itself."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from shiftproof.errors import ConfigurationError
from shiftproof.shifts.text import lexicon
from shiftproof.shifts.text.everyday import keyboard
from tests.shifts.text.sentences import parse

WORDS = [f"w{number}" for number in range(30)]
KNOWN = ["good", "film", "story", "very", "buy"] * 4
RUNS = 1500


def many(label, text, count=RUNS):
    return parse(label)([text] * count, range(count))


def assert_rate(hits, trials, rate):
    """Refuse a rate that chance explains with a probability under one in a million."""
    assert stats.binomtest(int(hits), int(trials), rate).pvalue > 1e-6


@pytest.mark.parametrize("severity", [1, 2, 4])
def test_random_replacement_replaces_its_share(severity):
    shift = parse(f"random_replacement@{severity}")
    made = many(shift.label, " ".join(WORDS))
    changed = sum(new != old for text in made for new, old in zip(text.split(), WORDS, strict=True))
    # The number per text is one of two whole numbers: less spread than a binomial, so this test is lenient.
    assert_rate(changed, RUNS * len(WORDS), shift.strength)
    assert parse("random_replacement@2").strength == 0.15


def test_random_deletion_deletes_each_word_with_its_probability():
    made = many("random_deletion@2", " ".join(WORDS))
    assert_rate(sum(len(WORDS) - len(text.split()) for text in made), RUNS * len(WORDS), 0.10)
    gone = Counter(word for text in made for word in set(WORDS) - set(text.split()))
    assert stats.chisquare([gone[word] for word in WORDS]).pvalue > 1e-6


def test_insertion_and_swap_make_one_edit_per_tenth_word():
    text = " ".join(KNOWN)
    longer = [len(new.split()) - len(KNOWN) for new in many("random_insertion@2", text)]
    assert set(longer) == {2}  # 10% of 20 words
    swapped = many("random_swap@2", " ".join(WORDS), 300)
    assert all(sorted(new.split()) == sorted(WORDS) for new in swapped)
    moved = {sum(a != b for a, b in zip(new.split(), WORDS, strict=True)) for new in swapped}
    assert moved <= {2, 4, 5, 6}  # three exchanges are an odd permutation
    assert 6 in moved


def test_synonyms_replace_a_tenth_of_the_words():
    made = many("synonym_replacement@2", " ".join(KNOWN), 300)
    for text in made:
        changed = [(new, old) for new, old in zip(text.split(), KNOWN, strict=True) if new != old]
        assert len(changed) == 2
        assert all(new in lexicon.synonyms()[old] for new, old in changed)


def test_eda_chooses_its_four_edits_equally_often():
    kinds = Counter[str]()
    for text in many("eda@2", " ".join(KNOWN)):
        words = text.split()
        if len(words) > len(KNOWN):
            kinds["insertion"] += 1
        elif len(words) < len(KNOWN):
            kinds["deletion"] += 1
        elif sorted(words) == sorted(KNOWN):
            kinds["swap"] += 1  # or a deletion of no word, which happens to 0.9 ** 20 of them
        else:
            kinds["synonym"] += 1
    nothing = 0.25 * 0.9 ** len(KNOWN)
    expected = {"insertion": 0.25, "synonym": 0.25, "deletion": 0.25 - nothing, "swap": 0.25 + nothing}
    assert stats.chisquare([kinds[k] for k in expected], [RUNS * share for share in expected.values()]).pvalue > 1e-6


def test_synonyms_keep_capitals_and_marks_and_say_where_they_come_from():
    made = many("synonym_replacement@5", "Film, (good)!", 50)
    assert any(re.fullmatch(r"(Movie|Picture), \(good\)!", text) for text in made)
    assert "built-in list" in parse("eda@2").notes[0]
    assert parse("eda@2[wordnet=somewhere]").notes == ()


def test_wordnet_files_are_read_as_published(tmp_path):
    entry = "02084071 05 n 03 dog 0 domestic_dog 0 Canis_familiaris 0 001 @ 02083346 n 0000 | a member of the genus\n"
    adjective = "00001740 00 a 02 able 0 capable(p) 0 000 | having the means\n"
    for part in lexicon.PARTS_OF_SPEECH:
        (tmp_path / f"data.{part}").write_text("  1 a licence\n" + (adjective if part == "adj" else entry))
    found = lexicon.synonyms(str(tmp_path))
    assert found["dog"] == ("Canis familiaris", "domestic dog")
    assert found["able"] == ("capable",)
    assert "capable" in parse(f"synonym_replacement@5[wordnet={tmp_path}]")(["able " * 10], [0])[0]
    with pytest.raises(ConfigurationError, match="no WordNet"):
        lexicon.synonyms(str(tmp_path / "elsewhere"))


def test_typos_hit_their_share_of_letters_with_keys_nearby():
    shift = parse("typos@3")
    letters = "a" * 200  # single-letter words: no swaps
    made = many(shift.label, " ".join(letters), 200)
    pieces = Counter(piece if piece else "" for text in made for piece in text.split(" "))
    changed = sum(count for piece, count in pieces.items() if piece != "a")
    assert_rate(changed, 200 * 200, shift.strength)
    assert set(pieces) <= {"a", "", "aa", *keyboard()["a"]}
    # Keys around `a` on a keyboard: q, w, s and z.
    assert keyboard()["a"] == "qswz"
    assert all(one in keyboard()[other] for other in keyboard() for one in keyboard()[other])


def test_marks_cases_shapes_and_spaces():
    text = 'He said: "Yes, of course!" (twice).'
    assert many("dropped_punctuation@5", text, 3) == ["He said Yes of course twice"] * 3
    cases = many("letter_case@5", text, 50)
    assert all(new.lower() == text.lower() for new in cases)
    scanned = many("ocr_confusions@5", "modern mill", 50)
    assert any("rn" in new and "m" not in new for new in scanned) or any("odem" in new for new in scanned)
    spaced = many("spacing@5", text, 50)
    assert all("".join(new.split()) == "".join(text.split()) for new in spaced)
    assert len(set(spaced)) > 10


def test_real_wordnet_has_the_synonyms_everybody_knows():
    folder = Path("/usr/share/wordnet")
    if not (folder / "data.noun").is_file():
        pytest.skip("needs WordNet's files in /usr/share/wordnet")
    assert "film" in lexicon.synonyms(str(folder))["movie"]


def test_vocabulary_of_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("alpha beta\ngamma beta")
    made = many(f"random_replacement@5[vocabulary={path}]", " ".join(WORDS), 20)
    assert set(" ".join(made).split()) - set(WORDS) == {"alpha", "beta", "gamma"}
    path.write_text("")
    lexicon.common_words.cache_clear()
    with pytest.raises(ConfigurationError, match="empty"):
        many(f"random_replacement@5[vocabulary={path}]", "a b c d", 2)
    assert len(lexicon.common_words()) > 500
    assert np.all([word == word.lower() for word in lexicon.common_words()])
