package write

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// The cost of a patch is limited.
func TestPatchBounds(t *testing.T) {
	t.Parallel()
	remove := `{"op":"remove","path":"/a"}`
	if _, err := parsePatch([]byte("[" + strings.Repeat(remove+",", maxOperations) + remove + "]")); !errors.Is(err, message.ErrTooCostly) {
		t.Errorf("many operations: %v", err)
	}
	doubling := strings.Repeat(`{"op":"copy","from":"/a","path":"/a/-"},`, 12)
	const added = `{"op":"add","path":"/b","value":"0123456789"}`
	for name, patch := range map[string]string{"copies": doubling + remove, "length": added} {
		p, err := parsePatch([]byte("[" + patch + "]"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := applyPatch([]byte(`{"a":["0123456789"]}`), p, 30); err == nil {
			t.Errorf("%s: applied", name)
		}
	}
}

// A parsed patch can be applied or fails. The result is deterministic JSON within the limit.
func FuzzJSONPatch(f *testing.F) {
	const stored = `{"resourceType":"Observation","id":"a","subject":{"reference":"Patient/a"},"performer":[{"reference":"Patient/a"}],"text":{"div":"<p>&amp;é</p>"},"value":1.10}`
	for _, patch := range []string{
		`[{"op":"replace","path":"/subject/reference","value":"Patient/b"}]`,
		`[{"op":"add","path":"/performer/-","value":{}},{"op":"remove","path":"/performer/0"}]`,
		`[{"op":"move","from":"/subject","path":"/performer/0/subject"},{"op":"test","path":"/value","value":1.1}]`,
		`[{"op":"copy","from":"/performer","path":"/performer/0/x"},{"op":"copy","from":"/performer","path":"/performer/0/x"}]`,
		`[{"op":"add","path":"/a","value":null},{"op":"add","path":"/a/b","value":1}]`,
	} {
		f.Add([]byte(stored), []byte(patch))
	}
	f.Fuzz(func(t *testing.T, text, patch []byte) {
		var object map[string]any
		if rawjson.Check(text) != nil || json.Unmarshal(text, &object) != nil || object == nil {
			return
		}
		p, err := parsePatch(patch)
		if err != nil {
			return
		}
		const limit = 1 << 16
		once, err := applyPatch(text, p, limit)
		if err != nil {
			return
		}
		if len(once) > limit {
			t.Errorf("%d bytes", len(once))
		}
		if !json.Valid(once) {
			t.Errorf("%s makes %s", patch, once)
		}
		again, _ := parsePatch(patch)
		if twice, err := applyPatch(text, again, limit); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s makes %s, then %s, %v", patch, once, twice, err)
		}
	})
}

// judged matches paths and names of elements on which the judgment of an Observation depends.
var judged = regexp.MustCompile(`^(?:Observation\.)?(?:subject|performer|contained|id|meta)(?:[.\[]|$)|\(`)

// A forwarded patch contains no element on which the judgment of a resource depends.
func FuzzFHIRPathPatch(f *testing.F) {
	for _, patch := range []string{
		`{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":"replace"},{"name":"path","valueString":"Observation.status"},{"name":"value","valueCode":"final"}]}]}`,
		`{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":"add"},{"name":"path","valueString":"Observation"},{"name":"name","valueString":"subject"},{"name":"value","valueReference":{"reference":"Patient/b"}}]}]}`,
		`{"resourceType":"Parameters","parameter":[{"name":"operation","part":[{"name":"type","valueCode":"move"},{"name":"path","valueString":"Observation.component[0].value"},{"name":"source","valueInteger":1}]}]}`,
	} {
		f.Add([]byte(patch))
	}
	rights := access.New(access.Holder{Scope: "patient/*.cruds", Patient: "a"}, access.NewTypeRules(nil))
	i := interaction.Interaction{Kind: interaction.Patch, Type: "Observation"}
	x := &Handler{Judge: &judge.Judge{GrantedRights: rights}, SearchHandler: &search.Handler{}}
	w := &write{handler: x, interaction: i, permission: writePermission{resourceType: i.Type, grants: rights.GrantsFor(i.Type, smart.Update)}}
	f.Fuzz(func(t *testing.T, patch []byte) {
		if w.checkFHIRPathPatch(patch) != nil {
			return
		}
		var p struct {
			Parameter []struct {
				Part []struct{ Name, ValueString string }
			}
		}
		if err := json.Unmarshal(patch, &p); err != nil {
			t.Fatal(err)
		}
		for _, operation := range p.Parameter {
			for _, part := range operation.Part {
				if (part.Name == "path" || part.Name == "name") && judged.MatchString(part.ValueString) {
					t.Errorf("%s was forwarded", patch)
				}
			}
		}
	})
}
