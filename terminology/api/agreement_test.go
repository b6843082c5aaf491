package api

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomSystem makes a code system in some versions, whose concepts differ between them: in their number, what is
// above them, a property, and whether they are active.
func randomSystem(r *rand.Rand, url string, versions int) []string {
	var all []string
	for version := range versions {
		var concepts []string
		for i := range 2 + r.IntN(5) {
			properties := []string{fmt.Sprintf(`{"code":"kind","valueCode":"k%d"}`, r.IntN(3))}
			if r.IntN(4) == 0 {
				properties = append(properties, `{"code":"inactive","valueBoolean":true}`)
			}
			if i > 0 && r.IntN(2) == 0 {
				properties = append(properties, fmt.Sprintf(`{"code":"parent","valueCode":"c%d"}`, r.IntN(i)))
			}
			concepts = append(concepts, fmt.Sprintf(`{"code":"c%d","property":[%s]}`, i, strings.Join(properties, ",")))
		}
		all = append(all, fmt.Sprintf(`{"resourceType":"CodeSystem","url":%q,"version":"%d.0","status":"active","content":"complete","concept":[%s]}`,
			url, version+1, strings.Join(concepts, ",")))
	}
	return all
}

// randomInclude makes one include or exclude: of a system, in one of its versions or the latest, and of value sets, if
// there are any so far. What is listed may be of a system, or a version of one, that is not here.
func randomInclude(r *rand.Rand, versions, valueSets int) string {
	set := map[string]any{}
	if valueSets > 0 && r.IntN(3) == 0 {
		set["valueSet"] = []string{fmt.Sprintf("http://x/v%d", r.IntN(valueSets))}
	}
	if len(set) == 0 || r.IntN(2) == 0 {
		set["system"] = fmt.Sprintf("http://x/s%d", r.IntN(2))
		if versions > 1 && r.IntN(2) == 0 {
			set["version"] = []string{"1.0", "2.0", "*"}[r.IntN(versions+1)]
		}
		ops := []string{"is-a", "descendent-of", "descendent-leaf", "is-not-a", "child-of", "generalizes"}
		switch r.IntN(4) {
		case 0:
			set["concept"] = []map[string]string{{"code": fmt.Sprintf("c%d", r.IntN(7))}, {"code": fmt.Sprintf("c%d", r.IntN(7))}}
			switch r.IntN(6) {
			case 0:
				set["system"] = "http://x/s2"
			case 1:
				set["system"] = "http://x/s3"
			case 2:
				set["version"] = "9.0"
			}
		case 1:
			set["filter"] = []map[string]string{{"property": "concept", "op": ops[r.IntN(len(ops))], "value": fmt.Sprintf("c%d", r.IntN(2))}}
		case 2:
			set["filter"] = []map[string]string{{"property": "kind", "op": []string{"in", "not-in"}[r.IntN(2)], "value": "k0,k1"}, {"property": "code", "op": "regex", "value": "c[0-3]"}}
		}
	}
	text, _ := json.Marshal(set)
	return string(text)
}

// validCodes are the codes of which $validate-code says that a value set has them.
func validCodes(t *testing.T, h *Handler, url, common string) []string {
	t.Helper()
	var codes, validations []string
	for i := range 28 {
		codes = append(codes, fmt.Sprintf("s%d c%d", i%4, i/4))
		validations = append(validations, `{"name":"validation","resource":`+parametersOf(
			uri("system", fmt.Sprintf("http://x/s%d", i%4)), fmt.Sprintf(`{"name":"code","valueCode":"c%d"}`, i/4))+`}`)
	}
	w, _ := call(t, h, "POST", "/ValueSet/$batch-validate-code", parametersOf(append(validations, uri("url", url), common)...))
	valid, i := []string{}, 0
	for _, one := range strings.Split(w.Body.String(), `{"name":"validation"`)[1:] {
		if strings.Contains(one, `{"name":"result","valueBoolean":true}`) {
			valid = append(valid, codes[i])
		}
		i++
	}
	if i != len(codes) {
		t.Fatalf("got %s", w.Body)
	}
	return valid
}

// A code is in a value set exactly if the expansion has it: $validate-code, which looks for it without an expansion,
// must find the same, whatever the value set is made of.
func TestValidateAgreesWithExpand(t *testing.T) {
	t.Parallel()
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 5))
		versions := 1 + int(seed%2)
		definitions := append(randomSystem(r, "http://x/s0", versions), randomSystem(r, "http://x/s1", versions)...)
		definitions = append(definitions, versionedSystem("http://x/s3", "1.0", []string{"not-present", "fragment", "example"}[seed%3], "")) // s2 is not here at all
		for v := range 3 {
			imports := v
			if versions > 1 {
				imports = 0 // where versions meet that were chosen elsewhere, which of the two counts is another matter
			}
			compose := fmt.Sprintf(`{"inactive":%t,"include":[%s,%s],"exclude":[%s]}`, r.IntN(3) > 0, randomInclude(r, versions, imports),
				randomInclude(r, versions, imports), randomInclude(r, versions, imports))
			definitions = append(definitions, valueSetOf(fmt.Sprintf("http://x/v%d", v), compose))
		}
		h := &Handler{Library: libraryOf(t, definitions...)}
		for v := range 3 {
			for _, active := range []string{"false", "true"} {
				url := fmt.Sprintf("http://x/v%d", v)
				listed := []string{}
				for _, c := range expandWith(t, h, "url", url, "activeOnly", active, "excludeNested", "true").Expansion.Contains {
					if code := strings.TrimPrefix(c.System, "http://x/") + " " + c.Code; !slices.Contains(listed, code) {
						listed = append(listed, code)
					}
				}
				valid := validCodes(t, h, url, `{"name":"activeOnly","valueBoolean":`+active+`}`)
				slices.Sort(listed)
				slices.Sort(valid)
				if !slices.Equal(listed, valid) {
					t.Errorf("seed %d, value set %d, activeOnly %s: expanded %q, valid %q\n%s", seed, v, active, listed, valid, definitions[len(definitions)-3+v])
				}
			}
		}
	}
}
