package definitions

import (
	"bufio"
	"bytes"
	"encoding/json"
	"regexp"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestCoreFile checks that the built-in file is as the generator writes it.
func TestCoreFile(t *testing.T) {
	decoder, err := zstd.NewReader(bytes.NewReader(coreDefinitions))
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	lines := bufio.NewScanner(decoder)
	lines.Buffer(nil, 1<<22)
	count := map[string]int{}
	for lines.Scan() {
		var resource map[string]json.RawMessage
		if err := json.Unmarshal(lines.Bytes(), &resource); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(lines.Bytes(), []byte(`{"resourceType":"`)) {
			t.Fatalf("a line begins with %.40s", lines.Bytes())
		}
		for _, name := range []string{"text", "meta", "contact", "description", "copyright"} {
			if resource[name] != nil {
				t.Errorf("%s has %s", resource["url"], name)
			}
		}
		count[string(resource["resourceType"])]++
	}
	if err := lines.Err(); err != nil || count[`"CodeSystem"`] != 1063 || count[`"ValueSet"`] != 1317 || count[`"ConceptMap"`] != 16 || count[`"StructureDefinition"`] != 176 || len(count) != 4 {
		t.Errorf("got %v, %v", count, err)
	}
}

// TestCoreBindings has what elements are bound to.
func TestCoreBindings(t *testing.T) {
	l := coreSet(t)
	// ResearchStudy and EvidenceVariable have elements of a later release; the others are bound to what is not HL7's.
	elsewhere := regexp.MustCompile(`StructureDefinition/(ResearchStudy|EvidenceVariable|ImagingStudy|MolecularSequence|ExplanationOfBenefit)#`)
	missing := 0
	for context, valueSet := range l.ValueSets.bindings.own {
		if _, ok := l.AnyValueSet(valueSet, ""); !ok {
			missing++
			if !elsewhere.MatchString(context) {
				t.Errorf("%s: %s is not here", context, valueSet)
			}
		}
	}
	if len(l.ValueSets.bindings.own) < 1000 || missing > 20 {
		t.Errorf("%d contexts, %d of them bound to what is not here", len(l.ValueSets.bindings.own), missing)
	}
}
