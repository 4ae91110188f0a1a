// Orders what the search of the site finds: guides come before the reference, and the changelog comes last.
var Scorer = {
  score: ([page, title, anchor, about, score]) => {
    if (page === "changelog") return score - 8;
    if (title.includes(" > ")) return score + 12; // the phrase is the heading of a section
    if (page === `reference/${title}` && score >= 15) return score + 5; // a method, of which the phrase is the name
    return page.includes("/") || page.startsWith("results") ? score : score + 3;
  },
  // as in Sphinx
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
