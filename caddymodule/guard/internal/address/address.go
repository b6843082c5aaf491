// Package address rewrites addresses of the FHIR server in responses into those that clients use.
//
//	address.go  the FHIR server's base URLs, learned from its responses, and their replacement in JSON and XML, piece by piece
//	links.go    Bundle.link in JSON and XML; an address of the FHIR server in the entries of a Bundle
//
// Addresses below the FHIR server's base are replaced wherever they stand, however they are escaped. What identifies
// something stays: canonical URLs of definitions, and the systems of identifiers and codes.
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

// Replacer replaces the FHIR server's base URLs by the gateway's in a text that arrives in pieces. How the text is cut
// into pieces makes no difference.
type Replacer struct {
	escapes escapes
	bases   [][]byte
	ours    string
	rest    []byte // of the pieces so far: context, and what may begin an address
	context int    // how much of rest is replaced already
}

const (
	// lookback is the length in bytes of the text before an address in which the name of its member is looked up.
	lookback = 128
	// segment is how much of the path after a base says whether it is an address of the FHIR API.
	segment = 48
	// widest is the width of a character that is escaped, in bytes.
	widest = 10
)

// NewReplacer returns a Replacer for a text in a format. Of the bases, those that are the gateway's stay.
func NewReplacer(format message.Format, bases []string, ours string) *Replacer {
	r := &Replacer{escapes: jsonEscapes, ours: ours}
	if format == message.XML {
		r.escapes = xmlEscapes
	}
	for _, b := range bases {
		if b != ours {
			r.bases = append(r.bases, []byte(b))
		}
	}
	// The longest first, since one may be the beginning of another.
	slices.SortFunc(r.bases, func(a, b []byte) int { return len(b) - len(a) })
	return r
}

// Append appends a piece of the text to out, with its addresses replaced, but for the end of the piece, which waits for
// the next one. After the last piece, everything is appended.
func (r *Replacer) Append(out, piece []byte, last bool) []byte {
	if len(r.bases) == 0 {
		return append(out, piece...)
	}
	text := piece
	if len(r.rest) > 0 {
		r.rest = append(r.rest, piece...)
		text = r.rest
	}
	until := len(text)
	if !last {
		until = max(until-widest*(len(r.bases[0])+segment), r.context)
	}
	find := finder{r: r, text: text, until: until, mayEscape: r.escapes.isUsed(text)}
	at := r.context
	for from := at; ; {
		found, ok := find.next(from)
		if !ok {
			break
		}
		if from = found.from + 1; r.isAddress(text, found) {
			out = append(append(out, text[at:found.from]...), r.ours...)
			at, from = found.to, found.to
		}
	}
	until = max(until, at)
	out = append(out, text[at:until]...)
	if last {
		r.rest, r.context = nil, 0
		return out
	}
	from := max(until-lookback, 0)
	r.rest, r.context = append(r.rest[:0], text[from:]...), until-from
	return out
}

// span is a part of a text.
type span struct{ from, to int }

// finder finds base URLs that begin before an offset of a text.
type finder struct {
	r         *Replacer
	text      []byte
	until     int
	mayEscape bool
	ahead     []int // the next place of each base, as far as it was looked for; until: none
}

// next finds the first base URL from an offset on.
func (f *finder) next(from int) (span, bool) {
	if from >= f.until {
		return span{}, false
	}
	if f.mayEscape {
		return f.nextEscaped(from)
	}
	if f.ahead == nil {
		f.ahead = make([]int, len(f.r.bases))
		for i := range f.ahead {
			f.ahead[i] = -1
		}
	}
	first, length := f.until, 0
	for i, b := range f.r.bases {
		if f.ahead[i] < from {
			f.ahead[i] = f.until
			if at := f.plain(from, b); at >= 0 {
				f.ahead[i] = at
			}
		}
		if f.ahead[i] < first {
			first, length = f.ahead[i], len(b)
		}
	}
	return span{first, first + length}, first < f.until
}

// plain finds a base URL from an offset on, by its rarest character.
func (f *finder) plain(from int, base []byte) int {
	rarest := bytes.IndexByte(base, '/')
	for i := range len(rareCharacters) {
		if at := bytes.IndexByte(base, rareCharacters[i]); at >= 0 {
			rarest = at
			break
		}
	}
	for at := from + rarest; at < len(f.text); at++ {
		found := bytes.IndexByte(f.text[at:], base[rarest])
		if at += found; found < 0 || at-rarest >= f.until {
			break
		}
		if bytes.HasPrefix(f.text[at-rarest:], base) {
			return at - rarest
		}
	}
	return -1
}

// rareCharacters are characters of host names that are rare in FHIR's JSON, the rarest first.
const rareCharacters = "qzjxkwyvbgf987654p"

// nextEscaped is next for a text in which characters may be escaped.
func (f *finder) nextEscaped(from int) (span, bool) {
	e := f.r.escapes
	for ; from < f.until; from++ {
		if f.text[from] != 'h' && f.text[from] != e.first { // as http begins
			continue
		}
		for _, b := range f.r.bases {
			if to := e.match(f.text, from, b); to > 0 && !e.isEscaped(f.text, from) {
				return span{from, to}, true
			}
		}
	}
	return span{}, false
}

// addressNames are the members and elements whose value is an address. Others whose value begins with a base URL, such
// as the system of an identifier, identify something. Narrative has href and src.
var addressNames = message.SetOf("reference", "fullUrl", "location", "url", "valueUrl", "endpoint", "address", "diagnostics", "text", "div", "href", "src")

// resourceNames are those whose value is the address of a resource, also of a definition. A url of a definition is its
// name, and stays.
var resourceNames = message.SetOf("reference", "fullUrl", "location")

// isAddress reports whether a base URL in a text begins an address of the FHIR API.
func (r *Replacer) isAddress(text []byte, base span) bool {
	name, begins := r.escapes.name(text, base.from)
	if begins && !addressNames[string(name)] {
		return false
	}
	at := base.to
	switch c, _ := r.escapes.char(text, at); c {
	case '/':
	case '|':
		return false
	default:
		return !isPath(c)
	}
	_, width := r.escapes.char(text, at)
	at += width
	var path [segment]byte
	n := 0
	for ; n < len(path); n++ {
		c, width := r.escapes.char(text, at)
		if !isPath(c) {
			break
		}
		path[n], at = c, at+width
	}
	first := path[:n]
	end, _ := r.escapes.char(text, at)
	switch {
	case n == len(path) || end == '|':
		return false
	case n == 0, string(first) == "metadata", first[0] == '$', first[0] == '_':
		return true
	case definitions[string(first)]:
		return resourceNames[string(name)]
	}
	return interaction.IsType(string(first))
}

// isPath reports whether a character may be part of a path segment.
func isPath(c byte) bool {
	switch c {
	case '-', '.', '_', '~', '$', '%', '+', ':', '@', '*', '!':
		return true
	}
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// definitions are the types whose resources have canonical URLs.
var definitions = message.SetOf(
	"ActivityDefinition", "CapabilityStatement", "ChargeItemDefinition", "CodeSystem", "CompartmentDefinition", "ConceptMap",
	"EffectEvidenceSynthesis", "EventDefinition", "Evidence", "EvidenceVariable", "ExampleScenario", "GraphDefinition",
	"ImplementationGuide", "Library", "Measure", "MessageDefinition", "NamingSystem", "OperationDefinition", "PlanDefinition",
	"Questionnaire", "ResearchDefinition", "ResearchElementDefinition", "RiskEvidenceSynthesis", "SearchParameter",
	"StructureDefinition", "StructureMap", "TerminologyCapabilities", "TestScript", "ValueSet",
)

// escapes is how a format escapes characters, and what precedes a value.
type escapes struct {
	first byte // of an escape
	// second are the characters of which one follows where a character of a URL is escaped.
	second string
	// char returns the character at an offset, and its width; 0 at the end of the text.
	char func(text []byte, at int) (c byte, width int)
	// name returns the name of the value that begins at an offset, and whether one does; empty if the name is not near.
	name func(text []byte, at int) (name []byte, begins bool)
}

// isUsed reports whether a text may have escaped characters.
func (e escapes) isUsed(text []byte) bool {
	for {
		at := bytes.IndexByte(text, e.first)
		if at < 0 || at+1 == len(text) {
			return false
		}
		if strings.IndexByte(e.second, text[at+1]) >= 0 {
			return true
		}
		text = text[at+2:]
	}
}

// match returns where a base URL ends that begins at an offset; 0 if none does.
func (e escapes) match(text []byte, at int, base []byte) int {
	for _, want := range base {
		c, width := e.char(text, at)
		if c != want {
			return 0
		}
		at += width
	}
	return at
}

// isEscaped reports whether the backslash at an offset is itself escaped. After many backslashes, it reports true.
func (e escapes) isEscaped(text []byte, at int) bool {
	if text[at] != '\\' {
		return false
	}
	n := 0
	for n < lookback/2 && at-n > 0 && text[at-n-1] == '\\' {
		n++
	}
	return n%2 == 1 || n == lookback/2
}

var jsonEscapes = escapes{
	first:  '\\',
	second: "/u",
	char: func(text []byte, at int) (byte, int) {
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
	name: func(text []byte, at int) ([]byte, bool) {
		if at == 0 || text[at-1] != '"' || at > 1 && text[at-2] == '\\' {
			return nil, false
		}
		before, ok := bytes.CutSuffix(trimSpace(text[max(0, at-lookback):at-1]), []byte(":"))
		return quotedEnd(trimSpace(before), ok), true
	},
}

var xmlEscapes = escapes{
	first:  '&',
	second: "#",
	char: func(text []byte, at int) (byte, int) {
		if at >= len(text) {
			return 0, 0
		}
		if text[at] != '&' || at+2 >= len(text) || text[at+1] != '#' {
			return text[at], 1
		}
		end := bytes.IndexByte(text[at:min(at+widest, len(text))], ';')
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
	name: func(text []byte, at int) ([]byte, bool) {
		if at == 0 || text[at-1] != '"' && text[at-1] != '\'' {
			return nil, false
		}
		before, ok := bytes.CutSuffix(trimSpace(text[max(0, at-lookback):at-1]), []byte("="))
		before = trimSpace(before)
		attribute := wordEnd(before)
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

// quotedEnd returns what is between the quotation marks at the end of a text, if it is the name of a member.
func quotedEnd(text []byte, isName bool) []byte {
	if !isName || len(text) == 0 || text[len(text)-1] != '"' {
		return nil
	}
	text = text[:len(text)-1]
	return text[bytes.LastIndexByte(text, '"')+1:]
}

// wordEnd returns the letters at the end of a text.
func wordEnd(text []byte) []byte {
	at := len(text)
	for at > 0 && isPath(text[at-1]) {
		at--
	}
	return text[at:]
}

// Bases remembers the base URLs that the FHIR server uses for itself, per way in which clients reach the gateway: many
// servers derive their base from the request. What one client makes the server call itself does not affect clients that
// use another host name. The zero value is ready for use, also by several goroutines.
type Bases struct {
	mu   sync.Mutex
	keys []key // the most recently added last
}

// key is one way to reach the gateway, with the bases that were seen there.
type key struct {
	name  string
	bases []string // the most recently added last
}

const (
	maxKeys  = 64
	maxBases = 4 // per key
	maxBase  = 256
)

// Key names the way in which a request has reached the gateway, as far as FHIR servers derive addresses from it.
func Key(r *http.Request) string {
	name := r.Host
	for _, forwarded := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Original-Host"} {
		name += "\n" + strings.Join(r.Header[forwarded], ",")
	}
	return name
}

// Of returns the bases that were seen for a key.
func (b *Bases) Of(name string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.index(name); i >= 0 {
		return slices.Clone(b.keys[i].bases)
	}
	return nil
}

// Add remembers a base for a key. Of too many, the oldest is forgotten.
func (b *Bases) Add(name, base string) {
	if !isBase(base) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.index(name)
	if i < 0 {
		b.keys = append(b.keys[max(0, len(b.keys)+1-maxKeys):], key{name: name})
		i = len(b.keys) - 1
	}
	k := &b.keys[i]
	if !slices.Contains(k.bases, base) {
		k.bases = append(slices.Clone(k.bases[max(0, len(k.bases)+1-maxBases):]), base)
	}
}

func (b *Bases) index(name string) int {
	return slices.IndexFunc(b.keys, func(k key) bool { return k.name == name })
}

var base = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~%!$&()*+,;=:@-]+)*$`)

// isBase reports whether a text is an absolute URL without query.
func isBase(text string) bool { return len(text) <= maxBase && base.MatchString(text) }

// BaseOf returns the base URL in an absolute address of the FHIR server's: what precedes the path that was requested
// there, or the first resource type where the base itself was requested. Empty if the address does not end with that path.
func BaseOf(address, asked string) string {
	address, _, _ = strings.Cut(address, "?")
	address = strings.TrimSuffix(strings.TrimSuffix(address, "/_search"), "/")
	if asked = strings.Trim(strings.TrimSuffix(asked, "_search"), "/"); asked != "" {
		before, found := strings.CutSuffix(address, "/"+asked)
		if !found {
			return ""
		}
		address = before
	} else if at := typeSegment.FindAllStringSubmatchIndex(address, -1); at != nil {
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

var typeSegment = regexp.MustCompile(`/([A-Z][A-Za-z]+)`)

var resourcePath = regexp.MustCompile(`^(.*)/([A-Z][A-Za-z]+)/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?$`)

// BaseOfResource returns the base URL in the absolute address of a resource. Empty if the address is none.
func BaseOfResource(address string) string {
	match := resourcePath.FindStringSubmatch(address)
	if match == nil || !interaction.IsType(match[2]) || !isBase(match[1]) {
		return ""
	}
	return match[1]
}

// HostOf returns the host in an address, for logs.
func HostOf(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Host
	}
	return ""
}
