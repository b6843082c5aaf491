package compose

import "testing"

// BenchmarkExpandAnew measures expansion without memory of earlier ones.
func BenchmarkExpandAnew(b *testing.B) {
	l := coreLibrary(b)
	vs, _ := l.set.ValueSets.Find("http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewEvaluator(l.set, new(Rules), nil).ValueSet(vs); err != nil {
			b.Fatal(err)
		}
	}
}
