package address

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
)

const (
	backend = "http://backend.internal:8080/fhir"
	ours    = "https://gateway.example/fhir/R4"
)

func replaceAll(text, old, by string) string { return strings.ReplaceAll(text, old, by) }

// rewriteInPieces rewrites a text that arrives in pieces of size bytes.
func rewriteInPieces(format message.Format, text string, size int, bases ...string) string {
	r := NewReplacer(format, bases, ours)
	var out []byte
	for at := 0; at < len(text); at += size {
		out = r.Append(out, []byte(text[at:min(at+size, len(text))]), false)
	}
	return string(r.Append(out, nil, true))
}

// TestReplacer rewrites texts with and without addresses. @ stands for the FHIR server's base URL, and # for the gateway's.
func TestReplacer(t *testing.T) {
	t.Parallel()
	const slashes, letters = `http:\/\/backend.internal:8080\/fhir`, `\u0068ttp\u003A//backend.internal:8080/fhi\u0072`
	for _, tt := range []struct{ name, text, want string }{
		{"reference", `{"reference":"@/Patient/1"}`, `{"reference":"#/Patient/1"}`},
		{"reference to a version", `{"reference" : "@/Patient/1/_history/2"}`, `{"reference" : "#/Patient/1/_history/2"}`},
		{"reference to a definition", `{"reference":"@/Library/1"}`, `{"reference":"#/Library/1"}`},
		{"slashes escaped", `{"reference":"` + slashes + `\/Patient\/1"}`, `{"reference":"#\/Patient\/1"}`},
		{"letters escaped", `{"reference":"` + letters + `/Pati\u0065nt/1"}`, `{"reference":"#/Pati\u0065nt/1"}`},
		{"after an escaped backslash", `{"text":"\\\u0068ttp://backend.internal:8080/fhir/Patient/1"}`, `{"text":"\\#/Patient/1"}`},
		{"an escape that is escaped", `{"text":"\\u0068ttp://backend.internal:8080/fhir/Patient/1"}`, ""},
		{"another server", `{"reference":"http://other.example/fhir/Patient/1"}`, ""},
		{"longer host", `{"reference":"http://backend.internal:80800/fhir/Patient/1"}`, ""},
		{"longer path", `{"reference":"@x/Patient/1"}`, ""},
		{"fullUrl", `{"fullUrl":"@/ValueSet/1"}`, `{"fullUrl":"#/ValueSet/1"}`},
		{"location", `{"response":{"location":"@/Patient/1/_history/1"}}`, `{"response":{"location":"#/Patient/1/_history/1"}}`},
		{"attachment", `{"attachment":{"url":"@/Binary/1"}}`, `{"attachment":{"url":"#/Binary/1"}}`},
		{"request", `{"request":{"method":"GET","url":"@/Patient?name=x"}}`, `{"request":{"method":"GET","url":"#/Patient?name=x"}}`},
		{"implementation", `{"implementation":{"url":"@"}}`, `{"implementation":{"url":"#"}}`},
		{"implementation with a slash", `{"implementation":{"url":"@/"}}`, `{"implementation":{"url":"#/"}}`},
		{"an operation", `{"url":"@/$export"}`, `{"url":"#/$export"}`},
		{"metadata", `{"url":"@/metadata"}`, `{"url":"#/metadata"}`},
		{"a file of another kind", `{"url":"@/files/1"}`, ""},
		{"url of a definition", `{"resourceType":"ValueSet","url":"@/ValueSet/1"}`, ""},
		{"url of an extension", `{"extension":[{"url":"@/StructureDefinition/1","valueUrl":"@/Patient/1"}]}`, `{"extension":[{"url":"@/StructureDefinition/1","valueUrl":"#/Patient/1"}]}`},
		{"a canonical reference", `{"valueSet":"@/ValueSet/1|2","profile":["@/StructureDefinition/1"]}`, ""},
		{"a canonical reference with a version", `{"url":"@/Patient|2"}`, ""},
		{"system", `{"system":"@/Patient","value":"@/Patient/1"}`, ""},
		{"diagnostics", `{"diagnostics":"Resource @/Patient/1 is not known, see @."}`, `{"diagnostics":"Resource #/Patient/1 is not known, see @."}`},
		{"diagnostics that begin so", `{"diagnostics":"@/Patient/1 is not known"}`, `{"diagnostics":"#/Patient/1 is not known"}`},
		{"narrative", `{"div":"<a href=\"@/Patient/1\">1</a>"}`, `{"div":"<a href=\"#/Patient/1\">1</a>"}`},
		{"narrative about a definition", `{"div":"<p>@/ValueSet/1</p>"}`, ""},
		{"far from its name", `{"reference":` + strings.Repeat(" ", 2*maxLookback) + `"@/Patient/1"}`, ""},
		{"many", strings.Repeat(`{"reference":"@/Patient/1"},`, 50), strings.Repeat(`{"reference":"#/Patient/1"},`, 50)},
		{"at the end", `"x @`, `"x #`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.want == "" {
				tt.want = tt.text
			}
			text := replaceAll(tt.text, "@", backend)
			want := replaceAll(replaceAll(tt.want, "#", ours), "@", backend)
			for size := 1; size <= len(text)+1; size += 1 + len(text)/200 {
				if got := rewriteInPieces(message.JSON, text, size, "http://unused.example/fhir", backend); got != want {
					t.Fatalf("in pieces of %d:\n%s\nwant\n%s", size, got, want)
				}
			}
		})
	}
}

// TestReplacerOfXML is like TestReplacer, but for XML.
func TestReplacerOfXML(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"reference", `<reference value="@/Patient/1"/>`, `<reference value="~/Patient/1"/>`},
		{"with a prefix", `<f:reference value = '@/Patient/1'/>`, `<f:reference value = '~/Patient/1'/>`},
		{"with an id", `<reference id="a" value="@/Patient/1"/>`, `<reference id="a" value="~/Patient/1"/>`},
		{"characters by number", `<reference value="http:&#x2F;&#47;backend.internal:8080/fhir&#x2f;Patient/1"/>`, `<reference value="~&#x2f;Patient/1"/>`},
		{"query", `<url value="@/Patient?name=x&amp;y=z"/>`, `<url value="~/Patient?name=x&amp;y=z"/>`},
		{"fullUrl", `<fullUrl value="@/ValueSet/1"/>`, `<fullUrl value="~/ValueSet/1"/>`},
		{"url of a definition", `<url value="@/ValueSet/1"/>`, ""},
		{"extension", `<extension url="@/StructureDefinition/1"/>`, ""},
		{"system", `<system value="@/Patient"/>`, ""},
		{"narrative", `<div><a href="@/Patient/1">@/Patient/1</a></div>`, `<div><a href="~/Patient/1">~/Patient/1</a></div>`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.want == "" {
				tt.want = tt.text
			}
			text := replaceAll(tt.text, "@", backend)
			want := replaceAll(replaceAll(tt.want, "~", ours), "@", backend)
			for size := 1; size <= len(text)+1; size++ {
				if got := rewriteInPieces(message.XML, text, size, backend); got != want {
					t.Fatalf("in pieces of %d:\n%s\nwant\n%s", size, got, want)
				}
			}
		})
	}
}

// randomJSON returns a random JSON value before and after rewriting.
func randomJSON(r *rand.Rand, depth int) (before, after any) {
	switch r.IntN(map[bool]int{true: 8, false: 5}[depth > 0]) {
	case 0:
		return float64(r.IntN(1000)), nil
	case 1:
		return strings.Repeat("\\\"/h\u0068\u00e9<é", r.IntN(40)), nil
	case 2, 3:
		return [...]string{backend, backend + "/Patient/1", backend + "/ValueSet/1", backend + "x", backend + "/$lastn?x=\"", "see " + backend + "/Patient/2, \\", "http://other/Patient/1"}[r.IntN(7)], nil
	case 4:
		return r.IntN(2) == 0, nil
	case 5:
		all := []any{}
		for range r.IntN(4) {
			value, _ := randomJSON(r, depth-1)
			all = append(all, value)
		}
		return all, nil
	}
	all := map[string]any{}
	for range r.IntN(5) {
		all[[...]string{"reference", "fullUrl", "url", "system", "text", "div", "link", "a\"b"}[r.IntN(8)]], _ = randomJSON(r, depth-1)
	}
	return all, nil
}

// expectedRewrite rewrites a decoded value independently of the tested code.
func expectedRewrite(value any, name string, isMember bool) any {
	switch value := value.(type) {
	case map[string]any:
		all := map[string]any{}
		for name, v := range value {
			all[name] = expectedRewrite(v, name, true)
		}
		return all
	case []any:
		all := []any{}
		for _, v := range value {
			all = append(all, expectedRewrite(v, "", false))
		}
		return all
	case string:
		isAddress := isMember && (name == "reference" || name == "fullUrl" || name == "url" || name == "text" || name == "div")
		rest, begins := strings.CutPrefix(value, backend)
		switch {
		case begins && !isAddress, begins && strings.HasPrefix(rest, "x"):
		case begins && strings.HasPrefix(rest, "/ValueSet") && name != "reference" && name != "fullUrl":
		default:
			return replaceAll(value, backend, ours)
		}
		return value
	}
	return value
}

// escapedJSON encodes a value, with randomly escaped characters.
func escapedJSON(r *rand.Rand, value any) string {
	switch value := value.(type) {
	case map[string]any:
		var members []string
		for name, v := range value {
			text, _ := json.Marshal(name)
			members = append(members, string(text)+[...]string{":", " : ", ":\n"}[r.IntN(3)]+escapedJSON(r, v))
		}
		return "{" + strings.Join(members, ", ") + "}"
	case []any:
		var all []string
		for _, v := range value {
			all = append(all, escapedJSON(r, v))
		}
		return "[" + strings.Join(all, ",") + "]"
	case string:
		var b strings.Builder
		for _, c := range value {
			switch {
			case c < 0x80 && r.IntN(20) == 0:
				fmt.Fprintf(&b, [...]string{`\u%04x`, `\u%04X`}[r.IntN(2)], c)
			case c == '/' && r.IntN(3) == 0:
				b.WriteString(`\/`)
			case c == '"' || c == '\\':
				b.WriteString(`\` + string(c))
			default:
				b.WriteRune(c)
			}
		}
		return `"` + b.String() + `"`
	}
	text, _ := json.Marshal(value)
	return string(text)
}

// Whatever the JSON, its escapes and the boundaries of its pieces, rewriting changes only addresses.
func TestReplacerProperty(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		value, _ := randomJSON(r, 4)
		text := escapedJSON(r, value)
		inOnePiece := rewriteInPieces(message.JSON, text, len(text)+1, backend)
		var got any
		if err := json.Unmarshal([]byte(inOnePiece), &got); err != nil {
			t.Fatalf("%v\n%s\nof\n%s", err, inOnePiece, text)
		}
		gotText, _ := json.Marshal(got)
		wantText, _ := json.Marshal(expectedRewrite(value, "", false))
		if string(gotText) != string(wantText) {
			t.Fatalf("got\n%s\nwant\n%s\nof\n%s", gotText, wantText, text)
		}
		if size := 1 + r.IntN(len(text)+1); rewriteInPieces(message.JSON, text, size, backend) != inOnePiece {
			t.Fatalf("in pieces of %d differs: %s", size, text)
		}
	}
}

// For any text, the result does not depend on the boundaries of pieces, and no call panics.
func FuzzRewriting(f *testing.F) {
	f.Add(`{"link":[{"relation":"next","url":"`+backend+`?x"}],"entry":[{"fullUrl":"`+backend+`/Patient/1"}]}`, 3, 1)
	f.Add(`<Bundle><link><relation value="next"/></link><entry><fullUrl value="`+backend+`/Patient/1"/></entry></Bundle>`, 7, 2)
	f.Add(`"\\\u0068ttp:\/\/backend.internal:8080\/fhir\/Patient`, 1, 1)
	f.Fuzz(func(t *testing.T, text string, size, format int) {
		if size = 1 + (size&0xffff)%(len(text)+1); format != int(message.XML) {
			format = int(message.JSON)
		}
		inOnePiece := rewriteInPieces(message.Format(format), text, len(text)+1, backend)
		if got := rewriteInPieces(message.Format(format), text, size, backend); got != inOnePiece {
			t.Errorf("in pieces of %d: %q, not %q", size, got, inOnePiece)
		}
		var found, foundInPieces message.Links
		var out []byte
		one, pieces := LinkReplacer{Seal: recordingSealer(&found)}, LinkReplacer{Seal: recordingSealer(&foundInPieces)}
		all, err := one.Append(nil, []byte(text))
		var failed error
		for at := 0; at < len(text) && failed == nil; at += size {
			out, failed = pieces.Append(out, []byte(text[at:min(at+size, len(text))]))
		}
		if err == nil && failed == nil && string(all) != string(out) {
			t.Errorf("links in pieces of %d: %q, not %q", size, out, all)
		}
		_, _ = ReplaceXMLLinks([]byte(text), recordingSealer(&found))
	})
}

// Only valid base URLs are stored. Each host name has separate base URLs.
func TestBases(t *testing.T) {
	t.Parallel()
	var b Bases
	for _, text := range []string{"", "fhir", "ftp://x/fhir", "http://x/fhir?y", "http://x/fhir#y", "http://x/a b", "http://x/" + strings.Repeat("a", maxBaseLength)} {
		if b.Add("a", text); len(b.Get("a")) > 0 {
			t.Errorf("%.20q was added", text)
		}
	}
	b.Add("a", "http://x/fhir")
	b.Add("a", "http://x/fhir")
	b.Add("b", "http://y/fhir")
	for name, want := range map[string][]string{"a": {"http://x/fhir"}, "b": {"http://y/fhir"}, "c": nil} {
		if got := b.Get(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// If there are too many bases or keys, the oldest are removed.
func TestBasesForget(t *testing.T) {
	t.Parallel()
	var b Bases
	for i := range maxKeys + 1 {
		b.Add(fmt.Sprint(i), "http://x/fhir")
	}
	for i := range maxBases + 1 {
		b.Add("1", fmt.Sprintf("http://x/%d", i))
	}
	if len(b.keys) != maxKeys || b.Get("0") != nil || b.Get(fmt.Sprint(maxKeys)) == nil {
		t.Errorf("%d keys", len(b.keys))
	}
	if got := b.Get("1"); !slices.Equal(got, []string{"http://x/1", "http://x/2", "http://x/3", "http://x/4"}) {
		t.Errorf("bases %q", got)
	}
}
