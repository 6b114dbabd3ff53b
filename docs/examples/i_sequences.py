"""
Sequences: gaps, words that must occur
======================================

A language model predicts how a text continues. A circuit over a chain of words can also tell what
was in a gap, compute how likely it is that a text contains a word anywhere, and write texts that
contain it. Each of these is a sum over all texts, and it is computed exactly here.
"""

# %%
# A small language: sentences about animals, cut to twelve words.

import matplotlib.pyplot as plt
import torch

import subtractive as sub
from subtractive.sequences import queries

generator = torch.Generator().manual_seed(0)
rules = {
    ".": "the a",
    "the": "cat dog bird old",
    "a": "cat dog bird small",
    "old": "cat dog",
    "small": "bird dog",
    "cat": "sleeps sees",
    "dog": "barks sees",
    "bird": "sings sees",
    "sees": "the a",
    "sleeps": ".",
    "barks": ".",
    "sings": ".",
}
words = list(rules)
follow = [[words.index(word) for word in rules[w].split()] for w in words]


def speak(length):
    text = [0]
    while len(text) <= length:
        choices = follow[text[-1]]
        text.append(choices[int(torch.randint(len(choices), (), generator=generator))])
    return text[1:]


texts = torch.tensor([speak(12) for _ in range(3000)])
print(" ".join(words[token] for token in texts[0]))

# %%
# A squared circuit over a linear tree: a Born machine. Position t is variable t, words are
# states.

circuit = sub.Circuit(sub.linear_tree(12), sub.Embedding(len(words)), num_units=12, seed=0)
p = sub.SquaredCircuit(circuit)
sub.fit(p, texts[:2700], texts[2700:], max_epochs=25, learning_rate=0.03, progress=False)
with torch.no_grad():
    print(f"held-out log-likelihood {p.log_prob(texts[2700:]).mean():.2f} per text")

# %%
# A gap, given words on both sides: only "the" and "a" can stand between "sees" and "dog", or an
# adjective before it.

sentence = "the cat sees ____ dog barks .".split()
known = {t: words.index(word) for t, word in enumerate(sentence) if word in words}
print(" ".join(sentence))
for chance, token in sorted(zip(queries.token_probabilities(p, 3, known).tolist(), words))[:-4:-1]:
    print(f"   {token:6s} {chance:.3f}")

# %%
# The chance that a word occurs anywhere, next to its share in the texts:

asked = ["bird", "old", "sings", "sleeps"]
exact = [queries.containing_probability(p, [words.index(word)]) for word in asked]
share = [float((texts == words.index(word)).any(1).double().mean()) for word in asked]
figure, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
ax.bar([i - 0.2 for i in range(4)], exact, 0.4, color="#440154", label="exact probability")
ax.bar([i + 0.2 for i in range(4)], share, 0.4, color="#b5dfc4", label="share of the texts")
ax.set(xticks=range(4), ylabel="a text contains it", ylim=(0, 1))
ax.set_xticklabels(asked)
ax.legend(frameon=False, fontsize=8)

# %%
# Texts that contain both "small" and "sleeps". They are drawn given that event, so none is
# rejected.

both = [words.index("small"), words.index("sleeps")]
print(f"probability {queries.containing_probability(p, both):.3f}")
for text in queries.sample_containing(p, both, 3, generator=generator):
    print("  ", " ".join(words[token] for token in text))
