// Package address replaces the FHIR server's addresses in responses by public addresses.
//
//	address.go  the FHIR server's base URLs, learned from its responses, and their replacement in JSON and XML, piece by piece
//	links.go    Bundle.link in JSON and XML; addresses of the FHIR server in the entries of a Bundle
//
// Addresses below the FHIR server's base are replaced everywhere, whatever their escaping. Identifiers stay unchanged:
// canonical URLs of definitions, and the systems of identifiers and codes.
package address

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Replacer replaces the FHIR server's base URLs by the gateway's in text that arrives in pieces. The result does not depend on
// where the text is split.
type Replacer struct {
	escapes       escapeRules
	bases         [][]byte
	publicBase    string
	pending       []byte // end of the previous pieces: context, and the possible beginning of an address
	contextLength int    // length of the part of pending that has already been replaced
}

const (
	// maxLookback is how many bytes before an address are searched for its member name.
	maxLookback = 128
	// maxSegment is the maximum length of the path segment after a base that identifies an address of the FHIR API.
	maxSegment = 48
	// maxEscapeWidth is the maximum length of an escaped character in bytes.
	maxEscapeWidth = 10
)

// NewReplacer returns a Replacer for text in a format. Bases that equal publicBase are not replaced.
func NewReplacer(format message.Format, bases []string, publicBase string) *Replacer {
	r := &Replacer{escapes: jsonEscapes, publicBase: publicBase}
	if format == message.XML {
		r.escapes = xmlEscapes
	}
	for _, b := range bases {
		if b != publicBase {
			r.bases = append(r.bases, []byte(b))
		}
	}
	// longest first, because one base may be a prefix of another
	slices.SortFunc(r.bases, func(a, b []byte) int { return len(b) - len(a) })
	return r
}

// Append appends a piece of the text to out and replaces its addresses. The end of the piece is retained until the next call,
// unless the piece is the last.
func (r *Replacer) Append(out, piece []byte, last bool) []byte {
	if len(r.bases) == 0 {
		return append(out, piece...)
	}
	text := piece
	if len(r.pending) > 0 {
		r.pending = append(r.pending, piece...)
		text = r.pending
	}
	until := len(text)
	if !last {
		until = max(until-maxEscapeWidth*(len(r.bases[0])+maxSegment), r.contextLength)
	}
	find := baseFinder{replacer: r, text: text, end: until, hasEscapes: r.escapes.mayApplyTo(text)}
	at := r.contextLength
	for from := at; ; {
		found, ok := find.next(from)
		if !ok {
			break
		}
		if from = found.from + 1; r.isAddress(text, found) {
			out = append(append(out, text[at:found.from]...), r.publicBase...)
			at, from = found.to, found.to
		}
	}
	until = max(until, at)
	out = append(out, text[at:until]...)
	if last {
		r.pending, r.contextLength = nil, 0
		return out
	}
	from := max(until-maxLookback, 0)
	r.pending, r.contextLength = append(r.pending[:0], text[from:]...), until-from
	return out
}

// span is a part of a text.
type span struct{ from, to int }

// baseFinder finds base URLs in a text.
type baseFinder struct {
	replacer      *Replacer
	text          []byte
	end           int
	hasEscapes    bool
	nextPositions []int // next position of each base; -1 if unknown, end if there is none
}

// next returns the first base URL at or after an offset.
func (f *baseFinder) next(from int) (span, bool) {
	if from >= f.end {
		return span{}, false
	}
	if f.hasEscapes {
		return f.nextEscaped(from)
	}
	if f.nextPositions == nil {
		f.nextPositions = make([]int, len(f.replacer.bases))
		for i := range f.nextPositions {
			f.nextPositions[i] = -1
		}
	}
	first, length := f.end, 0
	for i, b := range f.replacer.bases {
		if f.nextPositions[i] < from {
			f.nextPositions[i] = f.end
			if at := f.nextUnescaped(from, b); at >= 0 {
				f.nextPositions[i] = at
			}
		}
		if f.nextPositions[i] < first {
			first, length = f.nextPositions[i], len(b)
		}
	}
	return span{first, first + length}, first < f.end
}

// nextUnescaped finds a base URL at or after an offset by searching for its rarest character.
func (f *baseFinder) nextUnescaped(from int, base []byte) int {
	rarest := bytes.IndexByte(base, '/')
	for i := range len(rareCharacters) {
		if at := bytes.IndexByte(base, rareCharacters[i]); at >= 0 {
			rarest = at
			break
		}
	}
	for at := from + rarest; at < len(f.text); at++ {
		found := bytes.IndexByte(f.text[at:], base[rarest])
		if at += found; found < 0 || at-rarest >= f.end {
			break
		}
		if bytes.HasPrefix(f.text[at-rarest:], base) {
			return at - rarest
		}
	}
	return -1
}

// rareCharacters are characters of host names that are rare in FHIR JSON, rarest first.
const rareCharacters = "qzjxkwyvbgf987654p"

// nextEscaped is like next, but for text with escaped characters.
func (f *baseFinder) nextEscaped(from int) (span, bool) {
	e := f.replacer.escapes
	for ; from < f.end; from++ {
		if f.text[from] != 'h' && f.text[from] != e.firstByte { // first letter of "http"
			continue
		}
		for _, b := range f.replacer.bases {
			if to := e.matchEnd(f.text, from, b); to > 0 && !e.isEscaped(f.text, from) {
				return span{from, to}, true
			}
		}
	}
	return span{}, false
}

// addressNames are the members and elements with an address as value, including href and src in narratives. In other members,
// such as the system of an identifier, a URL below the base is an identifier.
var addressNames = message.NewSet("reference", "fullUrl", "location", "url", "valueUrl", "endpoint", "address", "diagnostics", "text", "div", "href", "src")

// resourceNames are the members and elements with the address of a resource as value, even of a definition. In contrast, the
// url of a definition is its canonical URL and is not replaced.
var resourceNames = message.NewSet("reference", "fullUrl", "location")

// isAddress reports whether the base URL begins an address of the FHIR API.
func (r *Replacer) isAddress(text []byte, base span) bool {
	name, isValueStart := r.escapes.valueName(text, base.from)
	if isValueStart && !addressNames[string(name)] {
		return false
	}
	at := base.to
	switch c, _ := r.escapes.decodeCharacter(text, at); c {
	case '/':
	case '|':
		return false
	default:
		return !isPathCharacter(c)
	}
	_, width := r.escapes.decodeCharacter(text, at)
	at += width
	var path [maxSegment]byte
	n := 0
	for ; n < len(path); n++ {
		c, width := r.escapes.decodeCharacter(text, at)
		if !isPathCharacter(c) {
			break
		}
		path[n], at = c, at+width
	}
	first := path[:n]
	end, _ := r.escapes.decodeCharacter(text, at)
	switch {
	case n == len(path) || end == '|':
		return false
	case n == 0, string(first) == "metadata", first[0] == '$', first[0] == '_':
		return true
	case definitionTypes[string(first)]:
		return resourceNames[string(name)]
	}
	return interaction.IsType(string(first))
}

// isPathCharacter reports whether a path segment may contain a character.
func isPathCharacter(c byte) bool {
	switch c {
	case '-', '.', '_', '~', '$', '%', '+', ':', '@', '*', '!':
		return true
	}
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// definitionTypes are the types of resources with canonical URLs.
var definitionTypes = message.NewSet(
	"ActivityDefinition", "CapabilityStatement", "ChargeItemDefinition", "CodeSystem", "CompartmentDefinition", "ConceptMap",
	"EffectEvidenceSynthesis", "EventDefinition", "Evidence", "EvidenceVariable", "ExampleScenario", "GraphDefinition",
	"ImplementationGuide", "Library", "Measure", "MessageDefinition", "NamingSystem", "OperationDefinition", "PlanDefinition",
	"Questionnaire", "ResearchDefinition", "ResearchElementDefinition", "RiskEvidenceSynthesis", "SearchParameter",
	"StructureDefinition", "StructureMap", "TerminologyCapabilities", "TestScript", "ValueSet",
)

// escapeRules describes how a format escapes characters and where it puts the names of values.
type escapeRules struct {
	firstByte byte // first byte of an escape sequence
	// secondBytes contains the possible second bytes of the escape sequence for a character in a URL.
	secondBytes string
	// decodeCharacter returns the character at an offset and its width in bytes; the width is 0 at the end of the text.
	decodeCharacter func(text []byte, at int) (c byte, width int)
	// valueName returns the name of the value at an offset (empty if it is too far away), and whether a value begins there.
	valueName func(text []byte, at int) (name []byte, isValueStart bool)
}

// mayApplyTo reports whether a text may contain escape sequences.
func (e escapeRules) mayApplyTo(text []byte) bool {
	for {
		at := bytes.IndexByte(text, e.firstByte)
		if at < 0 || at+1 == len(text) {
			return false
		}
		if strings.IndexByte(e.secondBytes, text[at+1]) >= 0 {
			return true
		}
		text = text[at+2:]
	}
}

// matchEnd returns the end of the base URL that begins at an offset, or 0 if there is none.
func (e escapeRules) matchEnd(text []byte, at int, base []byte) int {
	for _, want := range base {
		c, width := e.decodeCharacter(text, at)
		if c != want {
			return 0
		}
		at += width
	}
	return at
}

// isEscaped reports whether the backslash at an offset is itself escaped. If too many backslashes precede it, it returns true.
func (e escapeRules) isEscaped(text []byte, at int) bool {
	if text[at] != '\\' {
		return false
	}
	n := 0
	for n < maxLookback/2 && at-n > 0 && text[at-n-1] == '\\' {
		n++
	}
	return n%2 == 1 || n == maxLookback/2
}

var jsonEscapes = escapeRules{
	firstByte:   '\\',
	secondBytes: "/u",
	decodeCharacter: func(text []byte, at int) (byte, int) {
		switch {
		case at >= len(text):
			return 0, 0
		case text[at] != '\\':
			return text[at], 1
		case at+1 < len(text) && text[at+1] == '/':
			return '/', 2
		case at+6 <= len(text) && text[at+1] == 'u':
			if n, err := strconv.ParseUint(string(text[at+2:at+6]), 16, 16); err == nil && n < 0x80 {
				return byte(n), 6
			}
		}
		return '\\', 1
	},
	valueName: func(text []byte, at int) ([]byte, bool) {
		if at == 0 || text[at-1] != '"' || at > 1 && text[at-2] == '\\' {
			return nil, false
		}
		before, ok := bytes.CutSuffix(trimSpace(text[max(0, at-maxLookback):at-1]), []byte(":"))
		return trailingQuoted(trimSpace(before), ok), true
	},
}

var xmlEscapes = escapeRules{
	firstByte:   '&',
	secondBytes: "#",
	decodeCharacter: func(text []byte, at int) (byte, int) {
		if at >= len(text) {
			return 0, 0
		}
		if text[at] != '&' || at+2 >= len(text) || text[at+1] != '#' {
			return text[at], 1
		}
		end := bytes.IndexByte(text[at:min(at+maxEscapeWidth, len(text))], ';')
		if end < 0 {
			return '&', 1
		}
		digits, radix := string(text[at+2:at+end]), 10
		if digits != "" && digits[0] == 'x' {
			digits, radix = digits[1:], 16
		}
		if n, err := strconv.ParseUint(digits, radix, 16); err == nil && n < 0x80 {
			return byte(n), end + 1
		}
		return '&', 1
	},
	valueName: func(text []byte, at int) ([]byte, bool) {
		if at == 0 || text[at-1] != '"' && text[at-1] != '\'' {
			return nil, false
		}
		before, ok := bytes.CutSuffix(trimSpace(text[max(0, at-maxLookback):at-1]), []byte("="))
		before = trimSpace(before)
		attribute := trailingWord(before)
		if !ok || string(attribute) != "value" {
			return attribute, ok
		}
		open := bytes.LastIndexByte(before, '<')
		if open < 0 {
			return nil, true
		}
		element := before[open+1:]
		if i := bytes.IndexAny(element, " \t\r\n"); i >= 0 {
			element = element[:i]
		}
		return element[bytes.IndexByte(element, ':')+1:], true
	},
}

func trimSpace(text []byte) []byte { return bytes.TrimRight(text, " \t\r\n") }

// trailingQuoted returns the quoted string at the end of a text if it is the name of a member.
func trailingQuoted(text []byte, isName bool) []byte {
	if !isName || len(text) == 0 || text[len(text)-1] != '"' {
		return nil
	}
	text = text[:len(text)-1]
	return text[bytes.LastIndexByte(text, '"')+1:]
}

// trailingWord returns the word at the end of a text.
func trailingWord(text []byte) []byte {
	at := len(text)
	for at > 0 && isPathCharacter(text[at-1]) {
		at--
	}
	return text[at:]
}

// Bases contains the FHIR server's base URLs by key. The key identifies how clients address the gateway: many FHIR servers
// derive their base from the request, so a request must not affect clients that use another host name. The zero value is ready
// for use. Bases is safe for concurrent use.
type Bases struct {
	mu   sync.Mutex
	keys []keyBases // most recently added last
}

// keyBases contains the base URLs of one key.
type keyBases struct {
	key   string
	bases []string // most recently added last
}

const (
	maxKeys       = 64
	maxBases      = 4 // maximum number per key
	maxBaseLength = 256
)

// BasesKey returns the key for a request. It consists of the headers from which FHIR servers derive their addresses.
func BasesKey(r *http.Request) string {
	name := r.Host
	for _, forwarded := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Original-Host"} {
		name += "\n" + strings.Join(r.Header[forwarded], ",")
	}
	return name
}

// Get returns the bases of a key.
func (b *Bases) Get(name string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.index(name); i >= 0 {
		return slices.Clone(b.keys[i].bases)
	}
	return nil
}

// Add adds a base to a key. If the limit is exceeded, the oldest is removed.
func (b *Bases) Add(name, base string) {
	if !isBase(base) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.index(name)
	if i < 0 {
		b.keys = append(b.keys[max(0, len(b.keys)+1-maxKeys):], keyBases{key: name})
		i = len(b.keys) - 1
	}
	k := &b.keys[i]
	if !slices.Contains(k.bases, base) {
		k.bases = append(slices.Clone(k.bases[max(0, len(k.bases)+1-maxBases):]), base)
	}
}

func (b *Bases) index(name string) int {
	return slices.IndexFunc(b.keys, func(k keyBases) bool { return k.key == name })
}

var basePattern = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~%!$&()*+,;=:@-]+)*$`)

// isBase reports whether text is an absolute URL without a query.
func isBase(text string) bool { return len(text) <= maxBaseLength && basePattern.MatchString(text) }

// BaseOf returns the base URL in an absolute address of the FHIR server: the part before the requested path or, if the base
// itself was requested, before the first resource type. It is empty if the address does not end with the requested path.
func BaseOf(address, requestPath string) string {
	address, _, _ = strings.Cut(address, "?")
	address = strings.TrimSuffix(strings.TrimSuffix(address, "/_search"), "/")
	if requestPath = strings.Trim(strings.TrimSuffix(requestPath, "_search"), "/"); requestPath != "" {
		before, found := strings.CutSuffix(address, "/"+requestPath)
		if !found {
			return ""
		}
		address = before
	} else if at := typeSegmentPattern.FindAllStringSubmatchIndex(address, -1); at != nil {
		for _, m := range at {
			if interaction.IsType(address[m[2]:m[3]]) {
				address = address[:m[0]]
				break
			}
		}
	}
	if !isBase(address) {
		return ""
	}
	return address
}

var typeSegmentPattern = regexp.MustCompile(`/([A-Z][A-Za-z]+)`)

var resourcePathPattern = regexp.MustCompile(`^(.*)/([A-Z][A-Za-z]+)/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?$`)

// BaseOfResource returns the base URL in the absolute address of a resource, or "" for any other address.
func BaseOfResource(address string) string {
	match := resourcePathPattern.FindStringSubmatch(address)
	if match == nil || !interaction.IsType(match[2]) || !isBase(match[1]) {
		return ""
	}
	return match[1]
}

// HostOf returns the host of an address, for logs.
func HostOf(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Host
	}
	return ""
}
