package terminologytest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// grammar is a code system of lengths and durations, such as 20cm. It implements all interfaces that a grammar can implement.
type grammar struct{}

func (grammar) Locate(code []byte) (codesystem.Concept, bool) {
	_, _, why := splitCode(code)
	return codesystem.Concept{Code: code}, why == ""
}

func (grammar) Code(c codesystem.Concept) []byte { return c.Code }

func (grammar) Language() string { return "en" }

func (grammar) InvalidReason(code []byte) string {
	_, _, why := splitCode(code)
	return why
}

func (grammar) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	number, unit, _ := splitCode(c.Code)
	return c.Code, fmt.Appendf(nil, "%d %s", number, grammarUnits[unit].name), 0
}

func (g grammar) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	_, display, _ := g.Concept(c)
	return append(dst, codesystem.Text{Language: "en", Value: display, IsDisplay: true})
}

func (grammar) Properties() []codesystem.Property { return []codesystem.Property{{Code: "base"}} }

func (g grammar) Values(c codesystem.Concept, _ int, visit func([]byte) bool) {
	_, unit, _ := splitCode(c.Code)
	visit([]byte(grammarUnits[unit].base))
}

func (g grammar) AppendValues(dst []codesystem.Value, c codesystem.Concept) []codesystem.Value {
	g.Values(c, 0, func(text []byte) bool {
		dst = append(dst, codesystem.Value{Property: &codesystem.Property{Code: "base"}, Text: text, Member: "valueCode"})
		return true
	})
	return dst
}

func (grammar) FilterValue(_ int, value string) (string, error) {
	_, unit, why := splitCode([]byte(value))
	if why != "" {
		return "", errors.New(why)
	}
	return grammarUnits[unit].base, nil
}

func (g grammar) Explain(c codesystem.Concept, _ int, op, value string) string {
	return fmt.Sprintf("Code %s is not %s %s", c.Code, op, value)
}

func (grammar) Convert(from, to codesystem.Concept) (factor string, equal, ok bool) {
	n, a, _ := splitCode(from.Code)
	m, b, _ := splitCode(to.Code)
	had, has := n*grammarUnits[a].size, m*grammarUnits[b].size
	return strconv.FormatFloat(float64(had)/float64(has), 'g', -1, 64), had == has, grammarUnits[a].base == grammarUnits[b].base
}

// grammarUnits maps each unit to its base unit and its size in base units.
var grammarUnits = map[string]struct {
	name, base string
	size       int
}{"m": {"metres", "m", 100}, "cm": {"centimetres", "m", 1}, "s": {"seconds", "s", 1}, "min": {"minutes", "s", 60}}

// splitCode returns the number and unit of a code, or the reason (why) for which it is invalid.
func splitCode(code []byte) (number int, unit, why string) {
	digits := len(code) - len(strings.TrimLeft(string(code), "0123456789"))
	number, err := strconv.Atoi(string(code[:digits]))
	if unit = string(code[digits:]); err != nil || grammarUnits[unit].base == "" {
		return 0, "", fmt.Sprintf("no unit at column %d", digits+1)
	}
	return number, unit, ""
}

// URLs of the code systems and the value set of [SourceLibrary].
const (
	Measures       = "http://x/measures"
	CommonMeasures = "http://x/ValueSet/common"
	Shapes         = "http://x/shapes"
)

// EmbeddedShapes is the CodeSystem resource of an embedded table.
const EmbeddedShapes = `{"resourceType":"CodeSystem","url":"http://x/shapes","language":"en","caseSensitive":true,"content":"complete",
	"property":[{"code":"sides","type":"integer"}],"concept":[{"code":"polygon","display":"Polygon","concept":[
	{"code":"triangle","display":"Triangle","property":[{"code":"sides","valueInteger":3}],"designation":[{"language":"de","value":"Dreieck"}]},
	{"code":"square","display":"Square","property":[{"code":"sides","valueInteger":4}]}]},{"code":"circle","display":"Circle"}]}`

// Sources returns two sources: a grammar and the given table.
func Sources(t testing.TB, table []byte) []codesystem.Source {
	t.Helper()
	return []codesystem.Source{
		{
			URL: Measures, Name: "Measures", Version: "2", CaseSensitive: true, System: grammar{},
			Copyright: "© of measures", CommonCodes: CommonMeasures, Members: `{"title":"All measures"}`,
		},
		{URL: "http://x/closed", CaseSensitive: true, System: grammar{}},
		{URL: Shapes, Name: "Shapes", Version: "1", CaseSensitive: true, System: embeddedtable.New(table), Copyright: "© of shapes",
			Members: `{"id":"shapes","title":"All shapes","hierarchyMeaning":"is-a","valueSet":"http://x/ValueSet/shapes","property":[{"code":"sides","type":"integer"}]}`},
	}
}

// SourceLibrary returns a library with a grammar, a table and the given value sets.
func SourceLibrary(t testing.TB, valueSets ...string) *terminology.Library {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	common := `{"resourceType":"ValueSet","url":"http://x/ValueSet/common","version":"1","status":"draft","compose":{"include":[{"system":"http://x/measures",` +
		`"concept":[{"code":"1m","display":"nearly a yard"},{"code":"20cm"},{"code":"100cm"},{"code":"3s"},{"code":"nonsense"}]},{"system":"http://x/shapes"}]}}`
	fixture.WriteFile(t, filepath.Join(folder, "vs.json"), []byte(common+strings.Join(valueSets, "")))
	l, err := terminology.Load(context.Background(), definitions.Options{
		Definitions: []string{folder}, Now: func() time.Time { return fixture.Time }, Sources: Sources(t, w.EncodeAll([]byte(EmbeddedShapes), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
