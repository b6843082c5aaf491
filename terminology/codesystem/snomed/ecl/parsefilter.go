package ecl

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// filters parses the filters and the history supplement after an operand.
func (p *parser) filters(from int, n node) node {
	for {
		switch kind := p.filterKind(); kind {
		case 'C', 'D':
			defer p.enter()() // the tree is as deep as there are filters
			n = p.cacheable(from, &filtered{operand: n, kind: kind, criteria: p.criteria(kind)})
		case 'M':
			p.s.fail(p.s.pos, "expected a filter for concepts or descriptions: member filters belong directly after ^ and its operand")
		case '+':
			return p.cacheable(from, p.history(n))
		default:
			p.s.expect(`"{{"`)
			return n
		}
	}
}

// keywords are the criteria that are permitted in concept, description and member filters.
var keywords = map[byte][]string{
	'C': {"definitionStatusId", "definitionStatus", "moduleId", "effectiveTime", "active"},
	'D': {"term", "language", "typeId", "type", "dialectId", "dialect", "moduleId", "effectiveTime", "active", "id"},
	'M': {"moduleId", "effectiveTime", "active"},
}

// filterKind returns the kind of the filter that follows (C, D, M or + for a history supplement), or 0. A filter without a kind
// is a description filter.
func (p *parser) filterKind() (kind byte) {
	p.s.space()
	p.s.ahead(func() bool {
		word := ""
		if p.s.skip("{{") {
			kind, word = 'D', strings.ToUpper(p.s.word())
		}
		switch {
		case kind != 0 && p.s.at() == '+':
			kind = '+'
		case word != "" && strings.Contains("CM", word[:1]) && findWord(keywords['D'], word) == "":
			kind = word[0]
		}
		return kind != 0
	})
	return kind
}

// filterParser parses a filter of a kind: C, D or M.
type filterParser struct {
	p    *parser
	s    *scanner
	kind byte
}

// criteria parses a filter.
func (p *parser) criteria(kind byte) (list []criterion) {
	f := &filterParser{p: p, s: p.s, kind: kind}
	f.s.require("{{")
	if word := f.s.word(); word != "" && word[0]&^0x20 == kind && (kind == 'M' || len(word) == 1 || findWord(keywords[kind], word[1:]) != "") {
		f.s.pos++ // white space may be missing: {{Cactive=1}}
	}
	f.s.emit(string(kind))
	for {
		list = append(list, f.criterion())
		if !f.s.accept(",") {
			f.s.require("}}")
			return list
		}
	}
}

func (f *filterParser) criterion() criterion {
	word := f.s.word()
	field := findWord(keywords[f.kind], word)
	switch {
	case field == "" && f.kind == 'M' && word != "":
		f.s.pos += len(word)
		f.s.emit(word)
		return f.column(word)
	case field == "":
		for _, w := range keywords[f.kind] {
			f.s.expect(w)
		}
		f.s.failExpected(map[byte]string{'C': "another concept filter", 'D': "another description filter", 'M': "the name of a column"}[f.kind])
	}
	f.s.pos += len(word)
	f.s.emit(field)
	c := criterion{field: field, operator: f.s.comparison(field == "effectiveTime")}
	f.operand(&c)
	return c
}

// operand parses the values after a keyword and an operator.
func (f *filterParser) operand(c *criterion) {
	switch c.field {
	case "term":
		c.terms = parseSet(f.s, f.searchTerm)
	case "language":
		c.words = parseSet(f.s, f.language)
	case "type":
		c.field, c.values = "typeId", f.tokens(typeTokens)
	case "definitionStatus":
		c.field, c.values = "definitionStatusId", f.tokens(definitionTokens)
	case "typeId", "definitionStatusId", "moduleId":
		c.values = f.conceptValues()
	case "dialect":
		c.field, c.dialects = "dialectId", f.dialects(f.s.next("("), f.alias)
	case "dialectId":
		if f.isConceptSet("(") {
			c.dialects = f.dialects(true, f.p.conceptReference)
		} else {
			c.dialects = f.dialects(false, f.p.subexpression)
		}
	case "effectiveTime":
		c.words = parseSet(f.s, f.date)
	case "active":
		c.words = []string{f.active()}
	case "id":
		c.words = parseSet(f.s, f.descriptionID)
	}
}

// column parses the operator and the values of a criterion for a column of a reference set.
func (f *filterParser) column(name string) criterion {
	c := criterion{field: name, operator: f.s.comparison(true)}
	ordered := c.operator != "=" && c.operator != "!="
	f.s.space()
	switch at := f.s.pos; {
	case f.s.at() == '#':
		c.words = []string{f.s.number()}
	case ordered && f.isText():
		c.words = parseSet(f.s, f.date)
	case ordered:
		f.s.fail(at, "expected a number or a date after %s, such as #5 or \"20260131\"", c.operator)
	case f.isText():
		c.terms = parseSet(f.s, f.searchTerm)
	case strings.EqualFold(f.s.word(), "true") || strings.EqualFold(f.s.word(), "false"):
		c.words = []string{f.s.lowerWord()}
	default:
		c.values = f.p.subexpression()
	}
	return c
}

// isText reports whether a search term or a set of them follows.
func (f *filterParser) isText() bool {
	return f.s.ahead(func() bool {
		f.s.skip("(")
		return f.s.next(`"`) || f.s.acceptWord(searchKinds...) != "" && f.s.next(":")
	})
}

// searchKinds are the kinds of search terms. exact is an extension: it compares the whole text and its case.
var searchKinds = []string{"match", "wild", "exact"}

// searchTerm parses a typedSearchTerm.
func (f *filterParser) searchTerm() searchTerm {
	t := searchTerm{kind: f.s.acceptWord(searchKinds...)}
	if t.kind == "" {
		t.kind = "match"
	} else {
		f.s.requireSilently(":")
	}
	f.s.space()
	at := f.s.pos
	if t.text = f.s.quoted(t.kind == "wild"); t.kind != "match" {
		f.s.emit(t.kind + `:"` + t.text + `"`)
		return t
	}
	if t.text = strings.Join(strings.Fields(t.text), " "); t.text == "" {
		f.s.fail(at, `expected words, or wild:"" for an empty text`)
	}
	f.s.emit(`"` + t.text + `"`)
	return t
}

func (f *filterParser) language() string {
	if len(f.s.word()) != 2 {
		f.s.failExpected("a language code of two letters")
	}
	return f.s.lowerWord()
}

// token is a word for a concept.
type token struct {
	words []string // brief, then long
	id    concept
}

var (
	typeTokens = []token{
		{words: []string{"syn", "synonym"}, id: 900000000000013009},
		{words: []string{"fsn", "fullySpecifiedName"}, id: 900000000000003001},
		{words: []string{"def", "definition"}, id: 900000000000550004},
	}
	definitionTokens = []token{
		{words: []string{"primitive"}, id: 900000000000074008},
		{words: []string{"defined"}, id: 900000000000073002},
	}
	acceptabilityTokens = []token{
		{words: []string{"accept", "acceptable"}, id: 900000000000549004},
		{words: []string{"prefer", "preferred"}, id: 900000000000548007},
	}
)

// token parses one of the tokens and returns its concept.
func (f *filterParser) token(tokens []token) node {
	for _, t := range tokens {
		if f.s.acceptWord(t.words...) != "" {
			f.s.emit(t.words[0])
			return t.id
		}
		f.s.expect(t.words[0])
	}
	f.s.failExpected(tokens[len(tokens)-1].words[0])
	return nil
}

func (f *filterParser) tokens(tokens []token) node {
	return anyOf(parseSet(f.s, func() node { return f.token(tokens) }))
}

// anyOf returns the union of concepts.
func anyOf(list []node) node {
	if len(list) == 1 {
		return list[0]
	}
	return &compound{operator: "OR", operands: list}
}

// conceptValues parses a subexpression or an eclConceptReferenceSet.
func (f *filterParser) conceptValues() node {
	if f.isConceptSet("") {
		return anyOf(parseSet(f.s, f.p.conceptReference))
	}
	return f.p.subexpression()
}

// isConceptSet reports whether a set of concept references follows, not an expression in parentheses: after the first concept, the
// next byte must begin another concept or be in others.
func (f *filterParser) isConceptSet(others string) bool {
	return f.s.ahead(func() bool {
		if !f.s.skip("(") {
			return false
		}
		f.s.space()
		digits := f.s.run(isDigit)
		f.s.pos += len(digits)
		f.s.term()
		f.s.space()
		return digits != "" && (isDigit(f.s.at()) || f.s.at() != 0 && strings.IndexByte(others, f.s.at()) >= 0)
	})
}

// dialects parses dialects with acceptabilities. An acceptability after a set applies to dialects without acceptability.
func (f *filterParser) dialects(isSet bool, dialect func() node) []dialectCriterion {
	if !isSet {
		return []dialectCriterion{f.dialect(dialect)}
	}
	list := parseSet(f.s, func() dialectCriterion { return f.dialect(dialect) })
	acceptability := f.acceptability()
	for i := range list {
		if list[i].acceptability == nil {
			list[i].acceptability = acceptability
		}
	}
	return list
}

func (f *filterParser) dialect(dialect func() node) dialectCriterion {
	return dialectCriterion{refsets: dialect(), acceptability: f.acceptability()}
}

// acceptability parses an optional acceptabilitySet.
func (f *filterParser) acceptability() (list []uint64) {
	if !f.s.accept("(") {
		return nil
	}
	for _, n := range parseItems(f.s, f.acceptabilityValue) {
		list = append(list, uint64(n.(concept)))
	}
	return list
}

func (f *filterParser) acceptabilityValue() node {
	if f.s.space(); isDigit(f.s.at()) {
		return f.p.conceptReference()
	}
	f.s.expect("a concept identifier")
	return f.token(acceptabilityTokens)
}

// alias parses a dialectAlias and returns its language reference set.
func (f *filterParser) alias() node {
	f.s.space()
	alias := f.s.scheme()
	id, ok := dialectAliases[strings.ToLower(alias)]
	switch {
	case alias == "":
		f.s.failExpected("the alias of a dialect, such as en-gb")
	case !ok:
		f.s.fail(f.s.pos, "expected the alias of a dialect, such as en-gb, found %q: use dialectId for others", alias)
	}
	f.s.pos += len(alias)
	f.s.emit(strings.ToLower(alias))
	return id
}

// date parses a timeValue: a date as YYYYMMDD, or the empty string for unpublished components.
func (f *filterParser) date() string {
	f.s.space()
	at := f.s.pos
	date := f.s.quoted(false)
	if _, err := time.Parse("20060102", date); err != nil && date != "" {
		f.s.fail(at, `expected a date such as "20260131", found %q`, date)
	}
	f.s.emit(`"` + date + `"`)
	return date
}

// active parses an activeValue and returns 1, 0 or *. Values in quotes, as in examples of the specification, are accepted.
func (f *filterParser) active() string {
	quoted := f.s.skip(`"`)
	value := map[string]string{"false": "0", "true": "1", "any": "*"}[f.s.acceptWord("false", "true", "any")]
	for _, symbol := range []string{"0", "1", "*"} {
		if value == "" && f.s.skip(symbol) {
			value = symbol
		}
	}
	if value == "" {
		f.s.failExpected("true or false")
	}
	if quoted {
		f.s.requireSilently(`"`)
	}
	f.s.emit(value)
	return value
}

func (f *filterParser) descriptionID() string {
	return strconv.FormatUint(f.s.identifier(), 10)
}

// history parses a historySupplement. HISTORY and HISTORY (*) mean HISTORY-MAX.
func (p *parser) history(operand node) node {
	p.s.require("{{")
	p.s.require("+")
	if p.s.acceptWord("HISTORY") == "" {
		p.s.failExpected("HISTORY")
	}
	n := &history{operand: operand, profile: p.historyProfile()}
	from := len(p.s.canonical)
	p.s.emit("HISTORY")
	if n.profile == "" && p.s.accept("(") {
		n.subset = p.expression()
		p.s.require(")")
	}
	if n.subset == nil || isWildcard(n.subset) {
		n.subset, n.profile, p.s.canonical = nil, cmp.Or(n.profile, "MAX"), p.s.canonical[:from]
		p.s.emit("HISTORY-" + n.profile)
	}
	p.s.require("}}")
	return n
}

// historyProfile parses an optional historyProfileSuffix.
func (p *parser) historyProfile() string {
	if p.s.at() != '-' && p.s.at() != '_' {
		return ""
	}
	p.s.pos++
	profile := p.s.acceptWord("MIN", "MOD", "MAX")
	if profile == "" {
		p.s.failExpected("MIN, MOD or MAX")
	}
	return profile
}

// dialectAliases are the language reference sets of dialects (appendix C). Examples of the specification also use the aliases
// of the National Health Service without x.
var dialectAliases = map[string]concept{
	"da-dk": 554461000005103, "de": 722130004, "en-au": 32570271000036106, "en-ca": 19491000087109, "en-gb": 900000000000508004,
	"en-ie": 21000220103, "en-nz": 271000210107, "en-nz-x-pat": 281000210109, "en-us": 900000000000509007, "en-x-gmdn": 608771002,
	"en-x-nhs-clinical": 999001261000000100, "en-nhs-clinical": 999001261000000100,
	"en-x-nhs-dmd": 999000671000001103, "en-nhs-dmd": 999000671000001103,
	"en-x-nhs-pharmacy": 999000691000001104, "en-nhs-pharmacy": 999000691000001104,
	"en-gb-x-drug": 999000681000001101, "en-gb-x-ext": 999001251000000103, "es": 450828004, "es-uy": 5641000179103,
	"et-ee": 71000181105, "fr": 722131000, "fr-be": 21000172104, "fr-ca": 20581000087109, "ja": 722129009, "mi": 291000210106,
	"nb-no": 61000202103, "nl-be": 31000172101, "nl-nl": 31000146106, "nn-no": 91000202106, "sv-se": 46011000052107, "zh": 722128001,
}
