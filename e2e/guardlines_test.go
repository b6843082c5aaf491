package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sendLine sends the request that line describes, and follows the next links of the responses.
func (g *guarded) sendLine(t *testing.T, who guardHolder, line string) []httpResponse {
	t.Helper()
	method, path, body, headers := parseLine(line)
	token := g.token(t, who)
	first, err := g.trySend(t, token, method, path, body, headers...)
	answers := []httpResponse{first}
	for page := (searchPage{}); err == nil && len(answers) < 20; page = (searchPage{}) {
		if json.Unmarshal(answers[len(answers)-1].body, &page) != nil || page.next() == "" {
			break
		}
		var next httpResponse
		next, err = g.trySend(t, token, http.MethodGet, page.next(), "")
		answers = append(answers, next)
	}
	if err != nil {
		t.Error(err)
	}
	return answers
}

var (
	anyUUID    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyTime    = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	anyLink    = regexp.MustCompile(`_(page|job|file)/[A-Za-z0-9_.-]+`)
	anyBinary  = regexp.MustCompile(`Binary/[A-Za-z0-9]{20,}`)
	anyVersion = regexp.MustCompile(`"source":"#[A-Za-z0-9]+"`)
)

// comparable returns responses as text without the parts that differ between two equal requests: times, new ids, sealed links,
// and the order of unsorted matches.
func (w *testPatients) comparable(answers []httpResponse) string {
	var text strings.Builder
	var all []string
	for _, a := range answers {
		header := a.header.Clone()
		for _, name := range append([]string{"Last-Modified", "Expires"}, passingHeaders...) {
			header.Del(name)
		}
		if !strings.HasPrefix(header.Get("ETag"), `W/"`) || len(header.Get("ETag")) > 8 { // the ETag is a hash, not a version
			header.Del("ETag")
		}
		var members map[string]any
		body := string(a.body)
		if json.Unmarshal(a.body, &members) == nil && members["type"] == "searchset" {
			entries, _ := members["entry"].([]any)
			for _, entry := range entries {
				one, _ := json.Marshal(entry)
				all = append(all, string(one))
			}
			members["entry"], members["id"] = len(entries), ""
			rest, _ := json.Marshal(members)
			body = string(rest)
		}
		if output, ok := members["output"].([]any); ok { // the manifest of an export lists its files in any order
			slices.SortStableFunc(output, func(a, b any) int {
				return strings.Compare(fmt.Sprint(a.(map[string]any)["type"]), fmt.Sprint(b.(map[string]any)["type"]))
			})
			rest, _ := json.Marshal(members)
			body = string(rest)
		}
		text.WriteString(responseText(httpResponse{header: header, body: fmt.Appendf(nil, "%d %s\n", a.status, body)}))
	}
	if len(answers) > 0 && !strings.Contains(string(answers[0].body), "_sort") {
		slices.Sort(all)
	}
	result := w.template(text.String() + strings.Join(all, "\n"))
	for pattern, replacement := range map[*regexp.Regexp]string{
		anyUUID: "(id)", anyTime: "(time)", anyLink: "_$1/(sealed)", anyBinary: "Binary/(id)", anyVersion: `"source":""`,
	} {
		result = pattern.ReplaceAllString(result, replacement)
	}
	return result
}

// parseLine parses a request: the method and path, then headers as Name=value (with _ for space) separated by spaces, and after
// a tab the body.
func parseLine(line string) (method, path, body string, headers []string) {
	request, body, _ := strings.Cut(line, "\t")
	fields := strings.Split(request, " ")
	for _, field := range fields[2:] {
		name, value, _ := strings.Cut(field, "=")
		headers = append(headers, name, strings.ReplaceAll(value, "_", " "))
	}
	return fields[0], fields[1], body, headers
}
