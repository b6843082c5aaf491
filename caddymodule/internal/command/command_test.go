package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// run runs a command line with the given gateway response, and returns the last request and the output.
func run(t *testing.T, line []string, answer string) (request, printed string, err error) {
	t.Helper()
	root := &cobra.Command{Use: "caddy", SilenceErrors: true, SilenceUsage: true}
	for _, n := range []Command{sessionsCommand, grantsCommand, factorsCommand, keysCommand, logCommand} {
		cmd := &cobra.Command{Use: n.Name}
		n.addTo(cmd, func(*cobra.Command) (sender, error) {
			return func(_ context.Context, r Request) ([]byte, error) {
				if request = strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.target(), r.Body)); answer == "" {
					return nil, errors.New("refused")
				}
				return []byte(answer), nil
			}, nil
		})
		root.AddCommand(cmd)
	}
	var out strings.Builder
	root.SetOut(&out)
	root.SetIn(strings.NewReader("hospital:1\r\n\n u \n"))
	root.SetArgs(line)
	err = root.ExecuteContext(t.Context())
	return request, out.String(), err
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line           []string
		request        string
		answer, prints string
	}{
		{[]string{"fhir-sessions", "list", "--user", "a@b.example"}, "GET /fhir/sessions?user=a%40b.example", `[{"sid":"s","user":"u","clients":["x","y"]}]`, "SID  USER  SINCE                ADDRESS  APPS\ns    u     0001-01-01 00:00:00           x y\n"},
		{[]string{"fhir-sessions", "end", "s"}, "DELETE /fhir/sessions/s", `{"sessions":1,"offline_grants":[]}`, "Ended sessions: 1.\n"},
		{
			[]string{"fhir-sessions", "end", "s"}, "DELETE /fhir/sessions/s", `{"sessions":1,"offline_grants":[{"user_name":"a@b.example","term":"u","client_id":"c","until":"2026-01-02T03:04:05Z"}]}`,
			"Ended sessions: 1.\nThese apps still have access; revoke it with fhir-grants revoke:\n" +
				"USER  NAME  APP  APP NAME  SINCE                LAST USED            UNTIL\nu           c              0001-01-01 00:00:00  0001-01-01 00:00:00  2026-01-02 03:04:05\n",
		},
		{
			[]string{"fhir-grants", "list", "--user", "u", "--client", "c", "--name", "Ad"}, "GET /fhir/grants?client_id=c&name=Ad&user=u",
			`[{"user_name":"a@b.example","term":"u","name":"Ada","client_id":"c","client_name":"The App","since":"2026-01-02T03:04:05Z","last_used":"2026-01-02T04:00:00Z"}]`,
			"USER  NAME  APP  APP NAME  SINCE                LAST USED            UNTIL\nu     Ada   c    The App   2026-01-02 03:04:05  2026-01-02 04:00:00  sign-out\n",
		},
		{[]string{"fhir-grants", "list"}, "GET /fhir/grants", `[]`, "USER  NAME  APP  APP NAME  SINCE  LAST USED  UNTIL\n"},
		{[]string{"fhir-grants", "revoke", "--user", "u", "--client", "c"}, "DELETE /fhir/grants?client_id=c&user=u", `{"sessions":1,"refresh_tokens":2,"consents":3,"void":"all codes"}`, "Revoked: sessions 1, refresh tokens 2, consents 3, and all codes.\n"},
		{[]string{"fhir-grants", "revoke", "--user", "u", "--release-sub"}, "DELETE /fhir/grants?release_sub=true&user=u", `{"person":"hospital:1, sub x","sub_released":true,"void":"all"}`, "Person: hospital:1, sub x\nRevoked: sessions 0, refresh tokens 0, consents 0, and all.\nAnother person can get this sub in five minutes, unless its current owner signs in before then.\n"},
		{
			[]string{"fhir-grants", "revoke", "--users", "-", "--client", "c"}, "DELETE /fhir/grants?client_id=c&users=hospital%3A1&users=u", `{"people":[{"user":"hospital:1","person":"hospital:1, sub x","sessions":1,"status":200},{"user":"u","status":200}],"failed":0}`,
			"hospital:1: revoked sessions 1, refresh tokens 0, consents 0 (hospital:1, sub x)\nu: revoked sessions 0, refresh tokens 0, consents 0 ()\nRevoked grants of people: 2.\n",
		},
		{[]string{"fhir-factors", "reset", "--user", "u"}, "DELETE /fhir/factors?user=u", `{"sessions":2}`, "Removed the second factors of u. Ended sessions: 2.\n"},
		{[]string{"fhir-keys", "retire", "k"}, "DELETE /fhir/keys/k", `{"keys":[{"kid":"l","alg":"ES256","age_seconds":60,"active":true},{"kid":"m","alg":"A256GCM","age_seconds":1}]}`, "KID  ALG      USE                      ACTIVE  AGE\nl    ES256    signs tokens             yes     1m0s\nm    A256GCM  seals cookies and forms  no      1s\n"},
		{[]string{"fhir-keys", "retire", "--", "-k"}, "DELETE /fhir/keys/-k", `{"keys":[]}`, "KID  ALG  USE  ACTIVE  AGE\n"},
		{[]string{"fhir-log", "apq"}, "GET /fhir/refusals?client_id=apq", `[]`, "Nothing found for client \"apq\". This gateway has rejected none of its requests since it started; check the id with fhir-client list.\n"},
		{[]string{"fhir-log", "app"}, "GET /fhir/refusals?client_id=app", `[{"time":"2026-01-02T03:04:05Z","kind":"token","outcome":"invalid_grant","reason":"used"}]`, "TIME                 KIND   OUTCOME        REASON\n2026-01-02 03:04:05  token  invalid_grant  used\n"},
		{
			[]string{"fhir-log", "app"}, "GET /fhir/refusals?client_id=app",
			`[{"time":"2026-01-02T03:04:05Z","kind":"authorization","outcome":"invalid_request","reason":"no","redirect_uri":"https://a.example/cb/","closest_redirect_uri":"https://a.example/cb"}]`,
			"TIME                 KIND           OUTCOME          REASON\n2026-01-02 03:04:05  authorization  invalid_request  no (sent https://a.example/cb/; the closest registered is https://a.example/cb)\n",
		},
	} {
		request, printed, err := run(t, tt.line, tt.answer)
		if request != tt.request || printed != tt.prints || err != nil {
			t.Errorf("%v: request %q, output %q, error %v", tt.line, request, printed, err)
		}
		if _, printed, err := run(t, tt.line, ""); err == nil || printed != "" {
			t.Errorf("%v: refused, but printed %q, error %v", tt.line, printed, err)
		}
	}
}

// Names cannot reorder or hide other output. The JSON has the same values.
func TestControlCharactersOfNames(t *testing.T) {
	t.Parallel()
	const answer = `[{"sid":"s","user":"a\n` + "\u202e\u009b" + `\tדנה","clients":["x"]}]`
	for _, tt := range []struct{ flag, prints string }{
		{"--json=false", "SID  USER  SINCE                ADDRESS  APPS\ns    aדנה  0001-01-01 00:00:00           x\n"},
		{"--json", `[{"sid":"s","user":"a\n\u202e\u009b\tדנה","clients":["x"]}]` + "\n"},
	} {
		if _, printed, err := run(t, []string{"fhir-sessions", "list", tt.flag}, answer); err != nil || printed != tt.prints {
			t.Errorf("%q, %v", printed, err)
		}
	}
}

// An incomplete command line does not send a request.
func TestIncompleteCommands(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"fhir-sessions end", "fhir-sessions end s --user u", "fhir-grants revoke", "fhir-grants revoke --users - --user u",
		"fhir-grants revoke --users - --release-sub", "fhir-grants revoke --users /does/not/exist", "fhir-factors reset", "fhir-keys retire", "fhir-log",
	} {
		if request, _, err := run(t, strings.Fields(line), "{}"); err == nil || request != "" {
			t.Errorf("%s: request %q, error %v", line, request, err)
		}
	}
	for _, empty := range []string{"--users", "--user", "--client"} { // an empty value, such as from an unset variable
		line := []string{"fhir-grants", "revoke", "--user", "u", "--client", "c", empty, ""}
		if request, _, err := run(t, line, "{}"); err == nil || request != "" {
			t.Errorf("%q: request %q, error %v", line, request, err)
		}
	}
}

// An id that would be parsed as a flag is rejected with a hint.
func TestIDLikeFlag(t *testing.T) {
	t.Parallel()
	for _, line := range [][]string{{"fhir-keys", "retire", "-djx"}, {"fhir-sessions", "end", "-djx"}, {"fhir-log", "-djx"}} {
		if request, _, err := run(t, line, "{}"); err == nil || request != "" || !strings.Contains(err.Error(), "put -- before") {
			t.Errorf("%v: request %q, error %v", line, request, err)
		}
	}
}

// The exit status is nonzero if a person's grants were not revoked, also with --json, so that a nightly job can detect this.
// The output lists every person.
func TestRevokeReportsFailures(t *testing.T) {
	t.Parallel()
	const answer = `{"people":[{"user":"hospital:1","status":404,"error":"no such user"},{"user":"u","status":200,"person":"local:u"}],"failed":1}`
	for name, tt := range map[string]struct{ flag, prints string }{
		"text": {"--json=false", "hospital:1: revocation failed: no such user\nu: revoked sessions 0, refresh tokens 0, consents 0 (local:u)\n"},
		"json": {"--json", answer + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, printed, err := run(t, []string{"fhir-grants", "revoke", "--users", "-", tt.flag}, answer)
			if printed != tt.prints || err == nil || err.Error() != "revoking grants failed for 1 of 2 people" {
				t.Errorf("printed %q, error %v", printed, err)
			}
		})
	}
}

// Long lists are sent in several requests of the maximum size. People missing in the response are reported as failures.
func TestRevokeSendsLongListsInParts(t *testing.T) {
	t.Parallel()
	people := make([]string, 2*MaxPeoplePerRequest+1)
	for i := range people {
		people[i] = fmt.Sprintf("p%d", i)
	}
	file := filepath.Join(t.TempDir(), "people")
	if err := os.WriteFile(file, []byte(strings.Join(people, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	// The fake gateway responds to each request with only one person.
	request, _, err := run(t, []string{"fhir-grants", "revoke", "--users", file}, `{"people":[{"user":"p","status":200}]}`)
	if request != "DELETE /fhir/grants?users=p200" || err == nil || err.Error() != "revoking grants failed for 198 of 201 people" {
		t.Errorf("last request %q, error %v", request, err)
	}
}

// The error for an unreachable gateway does not contain the people in the request.
func TestErrorsNameNoPerson(t *testing.T) {
	t.Parallel()
	cmd := &cobra.Command{}
	addAdminFlags(cmd)
	if err := cmd.Flags().Set("address", "unix/"+filepath.Join(t.TempDir(), "nobody")); err != nil {
		t.Fatal(err)
	}
	ask, err := newAdminSender(cmd)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ask(t.Context(), Request{Method: "DELETE", Path: []string{"grants"}, Query: url.Values{"users": {"alice", "bob"}}})
	if err == nil || strings.Contains(err.Error(), "alice") || !strings.Contains(err.Error(), "/fhir/grants") {
		t.Error(err)
	}
}
