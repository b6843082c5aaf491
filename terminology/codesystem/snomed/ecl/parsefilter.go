package ecl

import (
	"cmp"
	"slices"
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
			p.fail(p.pos, "expected a filter for concepts or descriptions: member filters belong directly after ^ and its operand")
		case '+':
			return p.cacheable(from, p.history(n))
		default:
			p.expect(`"{{"`)
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
	p.space()
	p.ahead(func() bool {
		word := ""
		if p.skip("{{") {
			kind, word = 'D', strings.ToUpper(p.word())
		}
		switch {
		case kind != 0 && p.at() == '+':
			kind = '+'
		case word != "" && strings.Contains("CM", word[:1]) && p.keyword(word, 'D') == "":
			kind = word[0]
		}
		return kind != 0
	})
	return kind
}

// criteria parses a filter.
func (p *parser) criteria(kind byte) (list []criterion) {
	p.require("{{")
	if word := p.word(); word != "" && word[0]&^0x20 == kind && (kind == 'M' || len(word) == 1 || p.keyword(word[1:], kind) != "") {
		p.pos++ // white space may be missing: {{Cactive=1}}
	}
	p.emit(string(kind))
	for {
		list = append(list, p.criterion(kind))
		if !p.accept(",") {
			p.require("}}")
			return list
		}
	}
}

// keyword returns the canonical spelling of word if it is a keyword of a kind of filter, or "".
func (p *parser) keyword(word string, kind byte) string {
	i := slices.IndexFunc(keywords[kind], func(w string) bool { return strings.EqualFold(w, word) })
	if i < 0 {
		return ""
	}
	return keywords[kind][i]
}

func (p *parser) criterion(kind byte) criterion {
	word := p.word()
	keyword := p.keyword(word, kind)
	switch {
	case keyword == "" && kind == 'M' && word != "":
		p.pos += len(word)
		p.emit(word)
		return p.column(word)
	case keyword == "":
		for _, w := range keywords[kind] {
			p.expect(w)
		}
		p.failExpected(map[byte]string{'C': "another concept filter", 'D': "another description filter", 'M': "the name of a column"}[kind])
	}
	p.pos += len(word)
	p.emit(keyword)
	c := criterion{field: keyword, operator: p.comparison(keyword == "effectiveTime")}
	p.operand(&c)
	return c
}

// operand parses the values after a keyword and an operator.
func (p *parser) operand(c *criterion) {
	switch c.field {
	case "term":
		c.terms = parseSet(p, p.searchTerm)
	case "language":
		c.words = parseSet(p, p.language)
	case "type":
		c.field, c.values = "typeId", p.tokens(typeTokens)
	case "definitionStatus":
		c.field, c.values = "definitionStatusId", p.tokens(definitionTokens)
	case "typeId", "definitionStatusId", "moduleId":
		c.values = p.conceptValues()
	case "dialect":
		c.field, c.dialects = "dialectId", p.dialects(p.next("("), p.alias)
	case "dialectId":
		if p.isConceptSet("(") {
			c.dialects = p.dialects(true, p.conceptReference)
		} else {
			c.dialects = p.dialects(false, p.subexpression)
		}
	case "effectiveTime":
		c.words = parseSet(p, p.date)
	case "active":
		c.words = []string{p.active()}
	case "id":
		c.words = parseSet(p, p.descriptionID)
	}
}

// column parses the operator and the values of a criterion for a column of a reference set.
func (p *parser) column(name string) criterion {
	c := criterion{field: name, operator: p.comparison(true)}
	ordered := c.operator != "=" && c.operator != "!="
	p.space()
	switch at := p.pos; {
	case p.at() == '#':
		c.words = []string{p.number()}
	case ordered && p.isText():
		c.words = parseSet(p, p.date)
	case ordered:
		p.fail(at, "expected a number or a date after %s, such as #5 or \"20260131\"", c.operator)
	case p.isText():
		c.terms = parseSet(p, p.searchTerm)
	case strings.EqualFold(p.word(), "true") || strings.EqualFold(p.word(), "false"):
		c.words = []string{p.lowerWord()}
	default:
		c.values = p.subexpression()
	}
	return c
}

// isText reports whether a search term or a set of them follows.
func (p *parser) isText() bool {
	return p.ahead(func() bool {
		p.skip("(")
		return p.next(`"`) || p.acceptWord(searchKinds...) >= 0 && p.next(":")
	})
}

// searchKinds are the kinds of search terms. exact is an extension: it compares the whole text and its case.
var searchKinds = []string{"match", "wild", "exact"}

// searchTerm parses a typedSearchTerm.
func (p *parser) searchTerm() searchTerm {
	t := searchTerm{kind: "match"}
	if i := p.acceptWord(searchKinds...); i >= 0 {
		t.kind = searchKinds[i]
		p.requireSilently(":")
	}
	p.space()
	at := p.pos
	if t.text = p.quoted(t.kind == "wild"); t.kind != "match" {
		p.emit(t.kind + `:"` + t.text + `"`)
		return t
	}
	if t.text = strings.Join(strings.Fields(t.text), " "); t.text == "" {
		p.fail(at, `expected words, or wild:"" for an empty text`)
	}
	p.emit(`"` + t.text + `"`)
	return t
}

func (p *parser) language() string {
	if len(p.word()) != 2 {
		p.failExpected("a language code of two letters")
	}
	return p.lowerWord()
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
func (p *parser) token(tokens []token) node {
	for _, t := range tokens {
		if p.acceptWord(t.words...) >= 0 {
			p.emit(t.words[0])
			return t.id
		}
		p.expect(t.words[0])
	}
	p.failExpected(tokens[len(tokens)-1].words[0])
	return nil
}

func (p *parser) tokens(tokens []token) node {
	return anyOf(parseSet(p, func() node { return p.token(tokens) }))
}

// anyOf returns the union of concepts.
func anyOf(list []node) node {
	if len(list) == 1 {
		return list[0]
	}
	return &compound{operator: "OR", operands: list}
}

// conceptValues parses a subexpression or an eclConceptReferenceSet.
func (p *parser) conceptValues() node {
	if p.isConceptSet("") {
		return anyOf(parseSet(p, p.conceptReference))
	}
	return p.subexpression()
}

// isConceptSet reports whether a parenthesis follows with a concept and, without operator, another concept or one of the bytes
// in others.
func (p *parser) isConceptSet(others string) bool {
	return p.ahead(func() bool {
		if !p.skip("(") {
			return false
		}
		p.space()
		digits := p.run(isDigit)
		p.pos += len(digits)
		p.term()
		p.space()
		return digits != "" && (isDigit(p.at()) || p.at() != 0 && strings.IndexByte(others, p.at()) >= 0)
	})
}

// dialects parses dialects with acceptabilities. An acceptability after a set applies to the dialects without one of their own.
func (p *parser) dialects(isSet bool, dialect func() node) []dialectCriterion {
	if !isSet {
		return []dialectCriterion{p.dialect(dialect)}
	}
	list := parseSet(p, func() dialectCriterion { return p.dialect(dialect) })
	acceptability := p.acceptability()
	for i := range list {
		if list[i].acceptability == nil {
			list[i].acceptability = acceptability
		}
	}
	return list
}

func (p *parser) dialect(dialect func() node) dialectCriterion {
	return dialectCriterion{refsets: dialect(), acceptability: p.acceptability()}
}

// acceptability parses an optional acceptabilitySet.
func (p *parser) acceptability() (list []uint64) {
	if !p.accept("(") {
		return nil
	}
	for _, n := range parseItems(p, p.acceptabilityValue) {
		list = append(list, uint64(n.(concept)))
	}
	return list
}

func (p *parser) acceptabilityValue() node {
	if p.space(); isDigit(p.at()) {
		return p.conceptReference()
	}
	p.expect("a concept identifier")
	return p.token(acceptabilityTokens)
}

// alias parses a dialectAlias and returns its language reference set.
func (p *parser) alias() node {
	p.space()
	alias := p.scheme()
	id, ok := dialectAliases[strings.ToLower(alias)]
	switch {
	case alias == "":
		p.failExpected("the alias of a dialect, such as en-gb")
	case !ok:
		p.fail(p.pos, "expected the alias of a dialect, such as en-gb, found %q: use dialectId for others", alias)
	}
	p.pos += len(alias)
	p.emit(strings.ToLower(alias))
	return id
}

// date parses a timeValue: a date as YYYYMMDD, or the empty string for unpublished components.
func (p *parser) date() string {
	p.space()
	at := p.pos
	date := p.quoted(false)
	if _, err := time.Parse("20060102", date); err != nil && date != "" {
		p.fail(at, `expected a date such as "20260131", found %q`, date)
	}
	p.emit(`"` + date + `"`)
	return date
}

// active parses an activeValue and returns 1, 0 or *. Values in quotes, as in examples of the specification, are accepted.
func (p *parser) active() string {
	quoted := p.skip(`"`)
	i := p.acceptWord("false", "true", "any")
	for j, symbol := range []string{"0", "1", "*"} {
		if i < 0 && p.skip(symbol) {
			i = j
		}
	}
	if i < 0 {
		p.failExpected("true or false")
	}
	if quoted {
		p.requireSilently(`"`)
	}
	value := "01*"[i : i+1]
	p.emit(value)
	return value
}

func (p *parser) descriptionID() string {
	return strconv.FormatUint(p.identifier(), 10)
}

// history parses a historySupplement. HISTORY and HISTORY (*) mean HISTORY-MAX.
func (p *parser) history(operand node) node {
	p.require("{{")
	p.require("+")
	if p.acceptWord("HISTORY") < 0 {
		p.failExpected("HISTORY")
	}
	n := &history{operand: operand, profile: p.historyProfile()}
	from := len(p.canonical)
	p.emit("HISTORY")
	if n.profile == "" && p.accept("(") {
		n.subset = p.expression()
		p.require(")")
	}
	if n.subset == nil || isWildcard(n.subset) {
		n.subset, n.profile, p.canonical = nil, cmp.Or(n.profile, "MAX"), p.canonical[:from]
		p.emit("HISTORY-" + n.profile)
	}
	p.require("}}")
	return n
}

// historyProfile parses an optional historyProfileSuffix.
func (p *parser) historyProfile() string {
	if p.at() != '-' && p.at() != '_' {
		return ""
	}
	p.pos++
	i := p.acceptWord("MIN", "MOD", "MAX")
	if i < 0 {
		p.failExpected("MIN, MOD or MAX")
	}
	return []string{"MIN", "MOD", "MAX"}[i]
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
