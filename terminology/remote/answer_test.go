package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the XML codec
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestOutlineJSON(t *testing.T) {
	t.Parallel()
	valueSet := bodySummary{resource: "ValueSet", url: "http://x/vs", hasExpansion: true}
	tests := []struct {
		name, body string
		want       bodySummary
	}{
		{"expansion", `{"resourceType":"ValueSet","url":"http://x/vs","expansion":{"contains":[{"url":1}]}}`, valueSet},
		{"escaped", `{"resourceT\u0079pe":"ValueSet","url":"http:\/\/x\/vs","expansion":{}}`, valueSet},
		{"url null", `{"resourceType":"ValueSet","url":null,"expansion":{}}`, bodySummary{"ValueSet", "", true}},
		{"url a number", `{"resourceType":"ValueSet","url":5,"expansion":{}}`, bodySummary{"ValueSet", "", true}},
		{"url an object", `{"resourceType":"ValueSet","url":{"a":[1]},"expansion":{}}`, bodySummary{"ValueSet", "", true}},
		{"url twice", `{"url":"http://x/vs","resourceType":"ValueSet","url":7,"expansion":{}}`, valueSet},
		{"resourceType a number", `{"resourceType":5,"expansion":{}}`, bodySummary{"", "", true}},
		{"expansion null", `{"resourceType":"ValueSet","expansion":null}`, bodySummary{"ValueSet", "", false}},
		{"expansion a list", `{"resourceType":"ValueSet","expansion":[{}]}`, bodySummary{"ValueSet", "", false}},
		{"other letters", `{"resourcetype":"ValueSet","URL":"http://x/vs","Expansion":{}}`, bodySummary{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got, err := summarizeJSON([]byte(test.body)); err != nil || got != test.want {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestOutlineNoJSON(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"nothing": "", "a list": `[]`, "a string": `"x"`, "cut short": `{"resourceType":"ValueSet","expansion":{"a":[1}`,
		"more after it": `{"resourceType":"ValueSet"} {}`, "bad UTF-8": "{\"url\":\"\xff\"}", "bad UTF-8 within": "{\"expansion\":{\"a\":\"\xff\"}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := summarizeJSON([]byte(body)); err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// entriesFrom returns the entries [from, to) of an expansion in JSON.
func entriesFrom(from, to int) string {
	var list []string
	for n := from; n < to; n++ {
		list = append(list, fmt.Sprintf(`{"system":"http://x/s","code":"c%d"}`, n))
	}
	return strings.Join(list, ",")
}

// TestCut checks that entries beyond count are removed, and those before offset if the server ignores offset too.
func TestCut(t *testing.T) {
	posted := `{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":{"resourceType":"ValueSet"}},{"name":"count","valueInteger":2}]}`
	for _, test := range []struct {
		name      string
		q         Request
		expansion string // members of the expansion
		want      string // expected codes, total and offset
	}{
		{"it ignores count", expandRequest("count", "2"), `"contains":[` + entriesFrom(0, 100_000) + `]`, "c0 c1;100000;0"},
		{"it ignores both", expandRequest("count", "2", "offset", "3"), `"total":9,"contains":[` + entriesFrom(0, 9) + `]`, "c3 c4;9;3"},
		{"it ignores both, to the end", expandRequest("count", "5", "offset", "7"), `"offset":0,"contains":[` + entriesFrom(0, 9) + `]`, "c7 c8;9;7"},
		{"it ignores both, beyond the end", expandRequest("count", "5", "offset", "70"), `"contains":[` + entriesFrom(0, 9) + `]`, ";9;70"},
		{"it has the offset", expandRequest("count", "2", "offset", "3"), `"offset":3,"contains":[` + entriesFrom(3, 9) + `]`, "c3 c4;9;3"},
		{"offset applied, but not in the response", expandRequest("count", "2", "offset", "3"), `"total":9,"contains":[` + entriesFrom(3, 9) + `]`, "c3 c4;9;3"},
		{"the total alone", expandRequest("count", "0"), `"contains":[` + entriesFrom(0, 9) + `]`, ";9;0"},
		{"posted", Request{Method: http.MethodPost, Path: "ValueSet/$expand", Body: []byte(posted)}, `"contains":[` + entriesFrom(0, 9) + `]`, "c0 c1;9;0"},
		{"posted as a form", Request{Method: http.MethodPost, Path: "ValueSet/$expand", ContentType: "application/x-www-form-urlencoded", Body: []byte("count=1")}, `"contains":[` + entriesFrom(0, 9) + `]`, "c0;9;0"},
		{"no more than requested", expandRequest("count", "9"), `"total":12,"contains":[` + entriesFrom(0, 9) + `]`, "same"},
		{"no count", expandRequest("offset", "1"), `"contains":[` + entriesFrom(0, 9) + `]`, "same"},
		{"negative count", expandRequest("count", "-1"), `"contains":[` + entriesFrom(0, 9) + `]`, "same"},
		{"nothing", expandRequest("count", "2"), `"total":0`, "same"},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := `{"resourceType":"ValueSet","url":"http://x/v","expansion":{"timestamp":"2026-01-01",` + test.expansion + `}}`
			bodies := []string{body}
			if terminologytest.HasFeature("xml") {
				bodies = append(bodies, terminologytest.AsXML(t, body))
			}
			for _, body := range bodies {
				got := (&Response{Status: http.StatusOK, Resource: "ValueSet", Body: []byte(body)}).TrimToPage(ParseRequest(test.q))
				if test.want == "same" {
					if string(got.Body) != body {
						t.Errorf("got %s", got.Body)
					}
					continue
				}
				if outlined := outlineOf(t, got.Body); outlined != test.want {
					t.Errorf("got %.200s, want %s", outlined, test.want)
				}
			}
		})
	}
}

func outlineOf(t *testing.T, body []byte) string {
	t.Helper()
	if body[0] == '<' {
		var err error
		if body, err = negotiation.AppendJSON(nil, body); err != nil {
			t.Fatal(err)
		}
	}
	var vs struct {
		URL       string
		Expansion struct {
			Timestamp     string
			Total, Offset int
			Contains      []struct{ Code string }
		}
	}
	if err := json.Unmarshal(body, &vs); err != nil || vs.URL != "http://x/v" || vs.Expansion.Timestamp == "" {
		t.Fatalf("%v in %.200s", err, body)
	}
	var codes []string
	for _, c := range vs.Expansion.Contains {
		codes = append(codes, c.Code)
	}
	return fmt.Sprintf("%s;%d;%d", strings.Join(codes, " "), vs.Expansion.Total, vs.Expansion.Offset)
}
