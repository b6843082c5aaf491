package roster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
)

// run runs a command line and returns the last request and the output. answer is the gateway's response; "" is a rejection.
func run(t *testing.T, line []string, answer string) (request, printed string, err error) {
	t.Helper()
	adminAPI := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if request = strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.RequestURI, body)); answer == "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer adminAPI.Close()
	root := &cobra.Command{Use: "caddy", SilenceErrors: true, SilenceUsage: true}
	for _, name := range []string{"fhir-client", "fhir-user"} {
		cmd := &cobra.Command{Use: name}
		caddycmd.Commands()[name].CobraFunc(cmd)
		root.AddCommand(cmd)
	}
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs(append(line, "--address", adminAPI.Listener.Addr().String()))
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
		{
			[]string{"fhir-client", "list"}, "GET /fhir/clients", `[{"name":"a","from":"store","since":"2026-01-02T00:00:00Z","config":{"name":"App A"}},{"name":"b","from":"registration","waits":true},{"name":"c","from":"store","config":{"disabled":true}}]`,
			"CLIENT ID  NAME   FROM          SINCE       STATE\na          App A  store         2026-01-02  active\nb                 registration              pending approval\nc                 store                     disabled\n",
		},
		{
			[]string{"fhir-user", "list"}, "GET /fhir/users", `[{"name":"a","from":"store","config":{"name":"a","display_name":"Ada"}}]`,
			"NAME  DISPLAY NAME  FROM   SINCE  STATE\na     Ada           store         active\n",
		},
		{
			[]string{"fhir-client", "add", "a/b", "--secret", "name A"}, `POST /fhir/clients?secret=new {"id":"a/b","name":"A"}`, `{"name":"a/b","client_secret":"xyz"}`,
			"Added a/b.\nSecret (not shown again): xyz\n",
		},
		{[]string{"fhir-client", "edit", "a/b", "name A"}, `PATCH /fhir/clients/a%2Fb {"id":"a/b","name":"A"}`, `{"name":"a/b"}`, "Changed a/b.\n"},
		{[]string{"fhir-client", "edit", "a", "--patch", `{"scopes":null}`}, `PATCH /fhir/clients/a {"scopes":null}`, `{"name":"a"}`, "Changed a.\n"},
		{[]string{"fhir-client", "approve", "a"}, "POST /fhir/clients/a/approve", `{"name":"a"}`, "Approved a.\n"},
		{[]string{"fhir-client", "rotate-secret", "a"}, "POST /fhir/clients/a/secret", `{"name":"a","client_secret":"xyz"}`, "Changed a.\nSecret (not shown again): xyz\n"},
		{[]string{"fhir-client", "remove", "a", "--json"}, "DELETE /fhir/clients/a", `{"name":"a"}`, "{\"name\":\"a\"}\n"},
		{[]string{"fhir-client", "reset"}, "DELETE /fhir/roster", `{"clients":1,"users":2}`, "The store now contains: clients 1, users 2.\n"},
		{[]string{"fhir-user", "remove", ".."}, "DELETE /fhir/users/%2E%2E", `{"name":".."}`, "Removed ...\n"},
		{[]string{"fhir-user", "add", "wendy", "group nurses"}, `POST /fhir/users {"name":"wendy","groups":["nurses"]}`, `{"name":"wendy"}`, "Added wendy.\n"},
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

// An incomplete command line sends no request.
func TestIncompleteCommands(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"fhir-client add", "fhir-client add a bad", "fhir-client edit a", "fhir-client edit a --patch {} x", "fhir-client approve", "fhir-client remove a b",
	} {
		if request, _, err := run(t, strings.Fields(line), "{}"); err == nil || request != "" {
			t.Errorf("%s: request %q, error %v", line, request, err)
		}
	}
}

// Options on the command line are parsed like lines of the Caddyfile and cannot inject other lines.
func TestParseLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		parse func(string, []string) (json.RawMessage, error)
		lines []string
		want  string // "" if the line is rejected
	}{
		{"a client", parseClient, []string{`name "Growth Chart"`, "scope openid user/*.rs", "redirect_uri https://a.example/"}, `{"id":"x","name":"Growth Chart","redirect_uris":["https://a.example/"],"scopes":["openid","user/*.rs"]}`},
		{"no option", parseClient, nil, `{"id":"x"}`},
		{"a misspelled option", parseClient, []string{"redirect https://a.example/"}, ""},
		{"a line that ends the block", parseClient, []string{"}", "client y {"}, ""},
		{"a person", parseUser, []string{"group nurses", "password_hash $2a$04$zKlnfhDe3s1GmgVr0rjHPuS3gHgOGO2MGzkG3u0SGSUxxxn3zgLdm"}, `{"name":"x","password_hash":"$2a$04$zKlnfhDe3s1GmgVr0rjHPuS3gHgOGO2MGzkG3u0SGSUxxxn3zgLdm","groups":["nurses"]}`},
		{"a person's new group", parseUser, []string{"group nurses"}, `{"name":"x","groups":["nurses"]}`},
	} {
		if got, err := tt.parse("x", tt.lines); string(got) != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %s, %v", tt.name, got, err)
		}
	}
	for _, name := range []string{`DOM\wendy`, "a\t\u200bb", "`\"", `\`, "{"} {
		var u fhirapp.User
		text, err := parseUser(name, []string{"group nurses"})
		if json.Unmarshal(text, &u) != nil || u.Name != name || err != nil {
			t.Errorf("%q: %s, %v", name, text, err)
		}
	}
}
