package bcp13_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
)

func TestSource(t *testing.T) {
	terminologytest.WantSource(t, "bcp-13", "urn:ietf:bcp:13", false)
	terminologytest.WantCode(t, "urn:ietf:bcp:13", "", "application/pdf", "application/pdf", "aplication/pdf")
	terminologytest.WantCode(t, "urn:ietf:bcp:13", "", "text/plain;charset=utf-8", "text/plain;charset=utf-8", "text")
	terminologytest.WantResponses(t, map[string][]string{
		"/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/mimetypes&filter=pdf":                                 {`"code":"application/pdf"`, "valueset-unclosed", "'urn:ietf:bcp:13' has a grammar"},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/mimetypes&system=urn:ietf:bcp:13&code=x-a/b":   {`{"name":"result","valueBoolean":true}`},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/mimetypes&code=x-a/b&inferSystem=true":         {`{"name":"result","valueBoolean":true}`, `"valueUri":"urn:ietf:bcp:13"`},
		"/ValueSet/$validate-code?url=http://hl7.org/fhir/ValueSet/mimetypes&system=urn:ietf:bcp:13&code=texts/b": {`{"name":"result","valueBoolean":false}`},
	})
	terminologytest.WantMissing(t, map[string]bool{
		"/CodeSystem/$validate-code?url=urn:ietf:bcp:13&code=application/none.such": false,
	})
}

// TestUnregisteredMediaTypes checks that value sets may contain unregistered media types that they or imported value sets list.
func TestUnregisteredMediaTypes(t *testing.T) {
	const list = `{"system":"urn:ietf:bcp:13","concept":[{"code":"application/vnd.own"},{"code":"text/plain"},{"code":"texts/plain"}]}`
	vs := func(name, compose string) string {
		return `{"resourceType":"ValueSet","url":"http://x/` + name + `","status":"active","compose":` + compose + `}`
	}
	resources := []string{
		vs("list", `{"include":[`+list+`]}`), vs("bounded", `{"include":[{"system":"urn:ietf:bcp:13","valueSet":["http://x/list"]}]}`),
		vs("nothing", `{"include":[`+list+`],"exclude":[{"system":"urn:ietf:bcp:13"}]}`), vs("others", `{"include":[`+list+`],"exclude":[{"valueSet":["http://hl7.org/fhir/ValueSet/mimetypes"]}]}`),
	}
	h := &api.Handler{Library: terminologytest.Core(t)}
	for name, want := range map[string][]string{"list": {"application/vnd.own", "text/plain"}, "bounded": {"application/vnd.own", "text/plain"}, "nothing": nil, "others": nil} {
		body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/` + name + `"}`
		for _, r := range resources {
			body += `,{"name":"tx-resource","resource":` + r + `}`
		}
		w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$expand", body+"]}")
		var got struct {
			Expansion struct {
				Extension []any
				Contains  []struct{ Code string }
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		var codes []string
		for _, c := range got.Expansion.Contains {
			codes = append(codes, c.Code)
		}
		if !slices.Equal(codes, want) || len(got.Expansion.Extension) > 0 {
			t.Errorf("%s: got %s, want %v", name, w.Body, want)
		}
	}
}
