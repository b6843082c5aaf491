package compose

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// BenchmarkExpandAnew measures expansion without memory of earlier ones.
func BenchmarkExpandAnew(b *testing.B) {
	l := coreLibrary(b)
	vs, _ := l.set.ValueSets.Find("http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype")
	b.ReportAllocs()
	for b.Loop() {
		c := &Composer{Library: l.set, Rules: &Rules{}, done: make(map[*definitions.ValueSet]*CodeList)}
		if _, err := c.valueSet(vs); err != nil {
			b.Fatal(err)
		}
	}
}
