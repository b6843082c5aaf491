package gatewaytest

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

const separator = "\n----------\n"

// CheckGolden adapts the Caddyfile in the first half of a file, before a separator line, and compares the result with the JSON
// or the error in the second half. If update is true, it rewrites the second half.
func CheckGolden(t *testing.T, file string, update bool) {
	t.Helper()
	content := ReadFile(t, file)
	input, want, _ := strings.Cut(content, separator)
	got := adaptGolden(input)
	if update {
		ReplaceFile(t, file, input+separator+got+"\n")
		return
	}
	if got != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func adaptGolden(input string) string {
	document, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input+"\n"), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err.Error()
	}
	var text bytes.Buffer
	for _, w := range warnings {
		text.WriteString(w.String() + "\n")
	}
	if err := json.Indent(&text, document, "", "\t"); err != nil {
		return err.Error()
	}
	return text.String()
}

// AppCaddyfile returns a Caddyfile with the given lines in the fhir block, starting at line 4.
func AppCaddyfile(lines string) string {
	return "{\n\tfhir {\n\t\tissuer https://x.example\n\t\t" + lines + "\n\t}\n}\n"
}

// CheckCaddyfileError checks that the error for an invalid Caddyfile contains the line number and the word.
func CheckCaddyfileError(t *testing.T, text string, line int, word string) {
	t.Helper()
	_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err == nil {
		t.Fatal("accepted")
	}
	if message, name := err.Error(), "Caddyfile:"+strconv.Itoa(line); !strings.Contains(message, word) || !strings.Contains(message, name) {
		t.Errorf("%s\nwant %q and %s", message, word, name)
	}
}

// CaddyfileErrors lists invalid Caddyfiles, each with the line number and a word that the error must contain.
type CaddyfileErrors []struct {
	Name, Caddyfile string
	Line            int
	Word            string
}

// Check checks each Caddyfile with [CheckCaddyfileError].
func (all CaddyfileErrors) Check(t *testing.T) {
	t.Helper()
	for _, tt := range all {
		t.Run(tt.Name, func(t *testing.T) { CheckCaddyfileError(t, tt.Caddyfile, tt.Line, tt.Word) })
	}
}

// AuthorizationServer returns the Caddyfile of an authorization server with one user and the given lines in its fhir block.
func AuthorizationServer(lines string) string {
	return FormatCaddyfile("{\n\tauto_https disable_redirects\n\tskip_install_trust\n\tfhir {\n\t\tissuer https://localhost:8443\n\t\t" +
		"user alice {\n\t\t\tpassword_hash $2a$10$ItlMyMTaHOapU0jOlqAKDeKxwtj3jMQrwFNvdsOH7fXf5Z8O4Sjjy\n\t\t}\n\t\t" + lines + "\n\t}\n}\n\n" +
		"https://localhost:8443 {\n\tfhir_authorize\n}\n")
}

var (
	fencePattern      = regexp.MustCompile("(?ms)^```.*?^```")
	headingPattern    = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	nonSlugCharacters = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// Anchors returns the anchors that GitHub generates for the headings of a page: in lower case, without punctuation, with spaces
// replaced by hyphens, and numbered if repeated.
func Anchors(page string) (names []string) {
	seen := map[string]int{}
	for _, found := range headingPattern.FindAllStringSubmatch(fencePattern.ReplaceAllString(page, ""), -1) {
		name := strings.ReplaceAll(nonSlugCharacters.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-")
		if n := seen[name]; n > 0 {
			names = append(names, name+"-"+strconv.Itoa(n))
		} else {
			names = append(names, name)
		}
		seen[name]++
	}
	return names
}

// Invalid names of users and clients: InvalidNames are never valid as a sub; ReservedNames are valid only in tokens of other issuers.
var (
	InvalidNames = map[string]string{
		"space behind": "wendy ", "space before": " wendy", "tab": "wen\tdy", "NUL": "wendy\x00", "CR LF": "wendy\r\nX-Admin: 1", "LF": "wendy\n",
		"DEL": "wendy\x7f", "300 bytes": strings.Repeat("x", 300), "not ASCII": "wéndy", "no-break space": "wendy\u00a0",
	}
	ReservedNames = map[string]string{
		"a client that registered itself": "registered-0123456789abcdef0123456789abcdef", "a person of an identity provider": strings.Repeat("A", 43),
	}
	ValidNames = map[string]string{"plain": "wendy", "with a space": "Wendy Adams", "an address": "wendy@hospital.example", "255 bytes": strings.Repeat("x", 255)}
)
