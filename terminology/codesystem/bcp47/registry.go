package bcp47

import (
	_ "embed"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

// compressedRegistry is IANA's Language Subtag Registry in the format of RFC 5646 §3.1.1, reduced to the fields that are used.
// SOURCE.md describes its origin and how it is generated.
//
//go:embed registry.txt.zst
var compressedRegistry []byte

// sharedRegistry returns the registry, which is read on first use.
var sharedRegistry = sync.OnceValue(func() *registry { return newRegistry(registryText()) })

// registryText decompresses the registry. It panics if the embedded data is invalid, which is a programming error.
func registryText() string {
	text, err := embeddedtable.Unpack(compressedRegistry)
	if err != nil {
		panic(fmt.Errorf("bcp47: reading the subtag registry: %w", err))
	}
	return string(text)
}

// registry contains the records of the Language Subtag Registry.
type registry struct {
	subtags       [partVariant + 1]map[string]record
	grandfathered map[string]record // tags registered as a whole, with subtags that are not all registered
	redundant     map[string]record // other tags that are registered as a whole
}

// record is a record of the registry. Each line is a field.
type record string

// values yields the values of a repeatable field.
func (r record) values(field string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.SplitSeq(string(r), "\n") {
			if value, ok := strings.CutPrefix(line, field); ok && strings.HasPrefix(value, ": ") && !yield(value[2:]) {
				return
			}
		}
	}
}

// firstValue returns the first value of a field, or "".
func (r record) firstValue(field string) string {
	for value := range r.values(field) {
		return value
	}
	return ""
}

// newRegistry parses the text of the registry.
func newRegistry(text string) *registry {
	r := &registry{grandfathered: make(map[string]record), redundant: make(map[string]record)}
	byType := map[string]map[string]record{"grandfathered": r.grandfathered, "redundant": r.redundant}
	for part, name := range []string{"language", "extlang", "script", "region", "variant"} {
		r.subtags[part] = make(map[string]record)
		byType[name] = r.subtags[part]
	}
	for part := range strings.SplitSeq(text, "\n%%\n") {
		rec := record(part)
		records := byType[rec.firstValue("Type")]
		if records == nil {
			continue // header that contains the date of the registry
		}
		first, last, isRange := strings.Cut(rec.firstValue("Subtag")+rec.firstValue("Tag"), "..")
		records[first] = rec
		for isRange && first != last {
			first = nextSubtag(first)
			records[first] = rec
		}
	}
	return r
}

// nextSubtag returns the next subtag in a range of letters, such as qba after qaz.
func nextSubtag(subtag string) string {
	last := len(subtag) - 1
	if c := subtag[last]; c != 'z' && c != 'Z' {
		return subtag[:last] + string(rune(c+1))
	}
	first := "a"
	if subtag[last] == 'Z' {
		first = "A"
	}
	return nextSubtag(subtag[:last]) + first
}

// wholeTagRecord returns the record of a tag that is registered as a whole, or "".
func (r *registry) wholeTagRecord(tag string) record { return r.grandfathered[tag] + r.redundant[tag] }
