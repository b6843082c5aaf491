package searchparam

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Matches reports whether a resource of the parameter's type matches name=value. The value is decoded; commas separate
// alternatives, and backslashes escape special characters.
func (p Parameter) Matches(r resource.Resource, value string) (bool, error) {
	if len(p.Paths) == 0 {
		return false, fmt.Errorf("%w: %s", errNotEvaluable, p.Name)
	}
	criteria, err := p.criteria(value)
	if err != nil {
		return false, fmt.Errorf("%s: %w", p.Name, err)
	}
	for _, path := range p.Paths {
		for element := range r.Values(path) {
			if slices.ContainsFunc(criteria, func(c criterion) bool { return c.matches(r, path, element) }) {
				return true, nil
			}
		}
	}
	return false, nil
}

// criteria parses the alternatives of a value. It parses all of them, so that the error for a malformed value does not depend
// on the resource.
func (p Parameter) criteria(value string) ([]criterion, error) {
	var criteria []criterion
	for _, alternative := range split(value, ',') {
		if alternative == "" {
			return nil, errMalformedValue
		}
		c, err := p.criterion(alternative)
		if err != nil {
			return nil, err
		}
		criteria = append(criteria, c)
	}
	return criteria, nil
}

// criterion parses one alternative.
func (p Parameter) criterion(s string) (criterion, error) {
	switch p.Kind {
	case Token:
		return readToken(s)
	case Reference:
		return reference{p.Targets, unescape(s)}, nil
	case String:
		return readText(s)
	case URI:
		return uri(unescape(s)), nil
	case Date:
		return readDate(s)
	case Number, Quantity:
		return readQuantity(s)
	default:
		return nil, errNotEvaluable
	}
}

// Errors of [Parameter.Matches].
var (
	// errNotEvaluable means that this package cannot evaluate the parameter.
	errNotEvaluable = errors.New("search parameter cannot be evaluated")
	// errMalformedValue means that the value of a parameter is malformed.
	errMalformedValue = errors.New("malformed value of search parameter")
)

// criterion is a parsed alternative of a value, ready to be compared with elements of a resource.
type criterion interface {
	// matches reports whether an element at the end of a path matches.
	matches(r resource.Resource, path resource.Path, element []byte) bool
}

// split splits s at unescaped separators. The parts are still escaped.
func split(s string, separator byte) []string {
	var parts []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case separator:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// unescape replaces \, \| \$ and \\ by the escaped character. Other backslashes are unchanged.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	unescaped := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte(`,|$\`, s[i+1]) >= 0 {
			i++
		}
		unescaped = append(unescaped, s[i])
	}
	return string(unescaped)
}

// token is code, system|code, |code (without a system) or system| (any code of the system). It is case-sensitive, like most
// code systems.
type token struct {
	system, code string
	hasSystem    bool // the value contains a bar, so the system must match; if it is empty, there must be none
}

func readToken(s string) (criterion, error) {
	parts := split(s, '|')
	switch {
	case len(parts) == 1:
		return token{code: unescape(s)}, nil
	case len(parts) == 2 && s != "|":
		return token{unescape(parts[0]), unescape(parts[1]), true}, nil
	default:
		return nil, errMalformedValue
	}
}

// codingMembers maps types to the members that contain the system and the code.
var codingMembers = map[string][2]string{
	"Coding":       {"system", "code"},
	"Identifier":   {"system", "value"},
	"ContactPoint": {"", "value"},
}

// matches compares the token with an element of any type that contains codes.
func (t token) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	if path.Type == "CodeableConcept" {
		return t.matchesAny(element)
	}
	if members, ok := codingMembers[path.Type]; ok {
		return t.matchesCoding(element, members[0], members[1])
	}
	return t.matchesPrimitive(primitiveText(element), path.System)
}

// matchesPrimitive compares the token with a primitive code and its system in R4. Other primitive values have no system.
func (t token) matchesPrimitive(found, system string) bool {
	if t.hasSystem && (system == "" || t.system != system) {
		return false
	}
	return found != "" && (found == t.code || t.code == "")
}

// matchesAny compares the token with the codings of a CodeableConcept.
func (t token) matchesAny(concept []byte) bool {
	codings, ok := resource.Field(concept, "coding")
	if !ok {
		return false
	}
	for coding := range resource.Elements(codings) {
		if t.matchesCoding(coding, "system", "code") {
			return true
		}
	}
	return false
}

// matchesCoding compares the token with an element that has its system and code in the given members.
func (t token) matchesCoding(element []byte, system, code string) bool {
	if t.hasSystem && memberText(element, system) != t.system {
		return false
	}
	found := memberText(element, code)
	return found == t.code && found != "" || t.hasSystem && t.code == ""
}

// memberText returns the primitive value of an object's member, or "".
func memberText(object []byte, name string) string {
	if name == "" {
		return ""
	}
	value, ok := resource.Field(object, name)
	if !ok {
		return ""
	}
	return primitiveText(value)
}

// primitiveText returns the decoded value of a string or the text of a number or boolean, or "" for any other value.
func primitiveText(value []byte) string {
	if value[0] == '{' || value[0] == '[' || value[0] == 'n' {
		return ""
	}
	if value[0] != '"' {
		return string(value)
	}
	return resource.Text(value)
}

// reference is a search value: Type/id, an id, or a URL.
type reference struct {
	targets []string
	literal string
}

// matches compares the targets of references. Canonical URLs and URIs are compared without normalization.
func (s reference) matches(r resource.Resource, path resource.Path, element []byte) bool {
	if path.Type != "Reference" {
		return matchesURL(s.literal, path.Type, primitiveText(element))
	}
	to, literal, ok := r.ReferenceTarget(element)
	if !ok {
		return literal != "" && literal == s.literal
	}
	if to.Contained != "" {
		return false
	}
	if len(s.targets) > 0 && !slices.Contains(s.targets, to.Type) {
		return false
	}
	if to.Base == "" && to.ID == s.literal {
		return true
	}
	searched, ok := r.ParseReference(s.literal)
	return ok && searched == to
}

// matchesURL compares URLs. A canonical URL with a version also matches a search value without a version.
func matchesURL(searched, fhirType, found string) bool {
	if fhirType == "canonical" && !strings.Contains(searched, "|") {
		found, _, _ = strings.Cut(found, "|")
	}
	return found == searched && found != ""
}

// stringPrefix is the folded prefix of a string, i.e. without case and accents.
type stringPrefix string

// readText parses a string. It must not be empty, because every string has the empty string as a prefix.
func readText(s string) (criterion, error) {
	folded := fold(unescape(s))
	if folded == "" {
		return nil, errMalformedValue
	}
	return stringPrefix(folded), nil
}

// textMembers are the members of a type that are compared with a string.
var textMembers = map[string][]string{
	"HumanName": {"text", "family", "given", "prefix", "suffix"},
	"Address":   {"text", "line", "city", "district", "state", "postalCode", "country"},
}

// matches compares the prefix with a string, or with the parts of a name or an address.
func (t stringPrefix) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	members, ok := textMembers[path.Type]
	if !ok {
		return t.matchesString(element)
	}
	return slices.ContainsFunc(members, func(name string) bool {
		value, ok := resource.Field(element, name)
		return ok && t.matchesAny(value)
	})
}

// matchesAny compares the prefix with a string, or with each string of an array.
func (t stringPrefix) matchesAny(value []byte) bool {
	for element := range resource.Elements(value) {
		if t.matchesString(element) {
			return true
		}
	}
	return false
}

// matchesString compares the prefix with a string.
func (t stringPrefix) matchesString(value []byte) bool {
	return strings.HasPrefix(fold(resource.Text(value)), string(t))
}

// fold returns s without case, accents and superfluous spaces.
func fold(s string) string {
	letters := func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return unicode.ToLower(r)
	}
	return strings.Join(strings.Fields(strings.Map(letters, norm.NFKD.String(s))), " ")
}

// uri is a URI, which is compared without normalization.
type uri string

func (u uri) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	return matchesURL(string(u), path.Type, primitiveText(element))
}

// span is a range of time, excluding its end. A date covers its precision: 2024-03 is a month. A time without a zone is UTC.
type span struct{ start, end time.Time }

// unboundedSpan is the span of a Period without start and end.
var unboundedSpan = span{time.Unix(-1<<40, 0), time.Unix(1<<40, 0)}

type date struct {
	prefix prefix
	span   span
}

// dateLayouts are the formats of dates and the lengths of their spans.
var dateLayouts = []struct {
	layout              string
	years, months, days int
	length              time.Duration
}{
	{"2006", 1, 0, 0, 0},
	{"2006-01", 0, 1, 0, 0},
	{"2006-01-02", 0, 0, 1, 0},
	{"2006-01-02T15:04Z07:00", 0, 0, 0, time.Minute},
	{"2006-01-02T15:04", 0, 0, 0, time.Minute},
	{"2006-01-02T15:04:05Z07:00", 0, 0, 0, time.Second},
	{"2006-01-02T15:04:05", 0, 0, 0, time.Second},
}

// readDate parses a date with a prefix.
func readDate(s string) (criterion, error) {
	p, rest := cutPrefix(s)
	found, ok := parseDate(unescape(rest))
	if !ok {
		return nil, fmt.Errorf("%w: not a date", errMalformedValue)
	}
	return date{p, found}, nil
}

// ParseDateRange returns the range of a FHIR date or time, excluding its end: 2024-03 is a month. Without a zone, it is UTC.
func ParseDateRange(s string) (start, end time.Time, ok bool) {
	found, ok := parseDate(s)
	return found.start, found.end, ok
}

// parseDate parses a date or a time. If it has fractions of a second, it is an instant with a span of a nanosecond.
func parseDate(s string) (span, bool) {
	for _, l := range dateLayouts {
		start, err := time.Parse(l.layout, s)
		if err != nil {
			continue
		}
		length := l.length
		if length == time.Second && start.Nanosecond() != 0 {
			length = time.Nanosecond
		}
		return span{start, start.AddDate(l.years, l.months, l.days).Add(length)}, true
	}
	return span{}, false
}

// matches compares the date with a date, a period, or the times of a Timing.
func (d date) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	switch path.Type {
	case "Period":
		found, ok := parsePeriod(element)
		return ok && d.satisfiesPrefix(found)
	case "Timing":
		return d.matchesTiming(element)
	case "date", "dateTime", "instant":
		found, ok := parseDate(primitiveText(element))
		return ok && d.satisfiesPrefix(found)
	default:
		return false
	}
}

// matchesTiming compares the date with the times of a Timing.
func (d date) matchesTiming(timing []byte) bool {
	events, ok := resource.Field(timing, "event")
	if !ok {
		return false
	}
	for event := range resource.Elements(events) {
		if found, ok := parseDate(primitiveText(event)); ok && d.satisfiesPrefix(found) {
			return true
		}
	}
	return false
}

// parsePeriod parses a Period. The end is included, to its precision.
func parsePeriod(element []byte) (span, bool) {
	found := unboundedSpan
	start, end := memberText(element, "start"), memberText(element, "end")
	if start != "" {
		s, ok := parseDate(start)
		if !ok {
			return span{}, false
		}
		found.start = s.start
	}
	if end != "" {
		e, ok := parseDate(end)
		if !ok {
			return span{}, false
		}
		found.end = e.end
	}
	return found, start+end != ""
}

// satisfiesPrefix compares the span of an element with the searched one (https://hl7.org/fhir/R4/search.html#prefix). With the prefix
// ap, any overlap matches.
func (d date) satisfiesPrefix(found span) bool {
	isWithin := !found.start.Before(d.span.start) && !found.end.After(d.span.end)
	switch d.prefix {
	case "eq":
		return isWithin
	case "ne":
		return !isWithin
	case "gt":
		return found.end.After(d.span.end)
	case "lt":
		return found.start.Before(d.span.start)
	case "ge":
		return isWithin || found.end.After(d.span.end)
	case "le":
		return isWithin || found.start.Before(d.span.start)
	case "sa":
		return !found.start.Before(d.span.end)
	case "eb":
		return !found.end.After(d.span.start)
	default:
		return found.start.Before(d.span.end) && d.span.start.Before(found.end)
	}
}

// quantity is a number with a prefix and an optional unit: 5.4|http://unitsofmeasure.org|mg, or 5.4||mg for a unit as written
// or coded in any system.
type quantity struct {
	prefix  prefix
	number  decimal
	unit    token
	hasUnit bool
}

// readQuantity parses a number or a quantity.
func readQuantity(s string) (criterion, error) {
	parts := split(s, '|')
	var q quantity
	p, rest := cutPrefix(parts[0])
	number, ok := parseDecimal(rest)
	if !ok || len(parts) != 1 && len(parts) != 3 {
		return nil, fmt.Errorf("%w: not a quantity", errMalformedValue)
	}
	q.prefix, q.number = p, number
	if len(parts) == 3 && parts[1]+parts[2] != "" {
		q.unit = token{unescape(parts[1]), unescape(parts[2]), parts[1] != ""}
		q.hasUnit = true
	}
	return q, nil
}

// matches compares the quantity with a number or a quantity. Units are not converted. Quantities with a comparator, ranges and
// sampled data do not match.
func (q quantity) matches(_ resource.Resource, path resource.Path, element []byte) bool {
	switch path.Type {
	case "decimal", "integer", "positiveInt", "unsignedInt":
		return !q.hasUnit && q.compare(string(element))
	case "Quantity", "Age", "Count", "Distance", "Duration":
		if _, isBound := resource.Field(element, "comparator"); isBound {
			return false
		}
		return q.matchesUnit(element) && q.compare(memberText(element, "value"))
	case "Money":
		return q.matchesCurrency(element) && q.compare(memberText(element, "value"))
	default:
		return false
	}
}

func (q quantity) matchesUnit(element []byte) bool {
	if !q.hasUnit || q.unit.matchesCoding(element, "system", "code") {
		return true
	}
	return !q.unit.hasSystem && memberText(element, "unit") == q.unit.code
}

// matchesCurrency compares the currency by its ISO 4217 code.
func (q quantity) matchesCurrency(element []byte) bool {
	if !q.hasUnit {
		return true
	}
	if q.unit.hasSystem && q.unit.system != "urn:iso:std:iso:4217" {
		return false
	}
	return q.unit.code == "" || memberText(element, "currency") == q.unit.code
}

// compare compares the number with that of an element. Only equality takes its precision into account.
func (q quantity) compare(written string) bool {
	found, ok := parseDecimal(written)
	if !ok {
		return false
	}
	order := found.value.Cmp(q.number.value)
	switch q.prefix {
	case "eq":
		return q.number.contains(found.value)
	case "ne":
		return !q.number.contains(found.value)
	case "gt", "sa":
		return order > 0
	case "lt", "eb":
		return order < 0
	case "ge":
		return order >= 0
	case "le":
		return order <= 0
	default:
		return q.number.isApproximately(found.value)
	}
}

// decimal is a number and half of the unit of its last digit: 100 is 100 ± 0.5, and 1.00 is 1 ± 0.005.
type decimal struct{ value, tolerance *big.Rat }

// maxDigits is the maximum number of digits, which limits the cost of comparisons.
const maxDigits = 40

// parseDecimal parses a number in JSON syntax. A plus sign is accepted, too.
func parseDecimal(s string) (decimal, bool) {
	mantissa, exponent, ok := splitExponent(s)
	if !ok || strings.Trim(mantissa, "+-0123456789.") != "" || strings.Trim(mantissa, "+-.") == "" {
		return decimal{}, false
	}
	value, ok := new(big.Rat).SetString(mantissa)
	if !ok {
		return decimal{}, false
	}
	_, fraction, _ := strings.Cut(mantissa, ".")
	scale := powerOfTen(exponent)
	half := new(big.Rat).Mul(powerOfTen(-len(fraction)), big.NewRat(1, 2))
	return decimal{value.Mul(value, scale), half.Mul(half, scale)}, true
}

// splitExponent splits s. ok is true if the mantissa has at most maxDigits bytes and the exponent is within ±maxDigits.
func splitExponent(s string) (mantissa string, exponent int, ok bool) {
	mantissa, exponentText, has := strings.Cut(strings.ToLower(s), "e")
	if len(mantissa) > maxDigits {
		return "", 0, false
	}
	if !has {
		return mantissa, 0, true
	}
	exponent, err := strconv.Atoi(exponentText)
	return mantissa, exponent, err == nil && -maxDigits <= exponent && exponent <= maxDigits
}

// powerOfTen returns 10 to the power of n.
func powerOfTen(n int) *big.Rat {
	p := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n, -n))), nil))
	if n < 0 {
		p.Inv(p)
	}
	return p
}

// contains reports whether a value is the number within its tolerance.
func (d decimal) contains(value *big.Rat) bool {
	return new(big.Rat).Sub(d.value, d.tolerance).Cmp(value) <= 0 && new(big.Rat).Add(d.value, d.tolerance).Cmp(value) > 0
}

// isApproximately reports whether a value differs from the number by at most a tenth.
func (d decimal) isApproximately(value *big.Rat) bool {
	tenth := new(big.Rat).Mul(d.value, big.NewRat(1, 10))
	difference := new(big.Rat).Sub(d.value, value)
	return difference.Abs(difference).Cmp(tenth.Abs(tenth)) <= 0
}

// prefix determines how a number or a date is compared.
type prefix string

// prefixes are the prefixes that R4 defines for searches.
var prefixes = []string{"eq", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap"}

// cutPrefix splits a value into its prefix and the rest; the default prefix is eq.
func cutPrefix(s string) (prefix, string) {
	if len(s) > 2 && slices.Contains(prefixes, s[:2]) {
		return prefix(s[:2]), s[2:]
	}
	return "eq", s
}
