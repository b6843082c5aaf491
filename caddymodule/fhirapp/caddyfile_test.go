package fhirapp

import (
	"encoding/json"
	"flag"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

var (
	slow   = flag.Bool("slow", false, "try every value set, not every tenth")
	update = flag.Bool("update", false, "write the golden files anew")
)

// Each file in testdata/adapt contains a Caddyfile, a separator line, and the expected JSON or error. The flag -update
// regenerates the expected output.
func TestAdapt(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			gatewaytest.CheckGolden(t, file, *update)
		})
	}
}

// The error for an invalid Caddyfile contains the line and the offending word.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	app := gatewaytest.AppCaddyfile
	site := func(body string) string { return "localhost {\n\t" + body + "\n}\n" }
	client := func(line string) string { return app("client c {\n\t\t\t" + line + "\n\t\t}") }
	tests := []struct {
		name, caddyfile string
		line            int
		word            string
	}{
		{"cors of no origin", site("fhir_bearer {\n\t\tcors https://app.example.org/\n\t}"), 3, "https://app.example.org/"},
		{"cors without origins", site("fhir_expand {\n\t\tcors\n\t}"), 3, "cors"},
		{"log format with a wrong word", "{\n\tlog {\n\t\tformat fhir {\n\t\t\twarp json\n\t\t}\n\t}\n}\n", 4, "warp"},
		{"unknown option", app("isuer https://x.example"), 4, "isuer"},
		{"option twice", app("fhir_base /a\n\t\tfhir_base /b"), 5, "fhir_base"},
		{"issuer over http", "{\n\tfhir {\n\t\tissuer http://x.example\n\t}\n}\n", 3, "http://x.example"},
		{"issuer missing", "{\n\tfhir {\n\t\tfhir_base /a\n\t}\n}\n", 4, "issuer"},
		{"surplus word", app("fhir_base /a /b"), 4, "/b"},
		{"missing word", app("fhir_base"), 4, "fhir_base"},
		{"words after fhir", "{\n\tfhir x {\n\t}\n}\n", 2, "x"},
		{"fhir twice", "{\n\tfhir {\n\t\tissuer https://x.example\n\t}\n\tfhir {\n\t}\n}\n", 5, "fhir"},
		{"base with a slash at its end", app("fhir_base /a/"), 4, "/a/"},
		{"no duration", app("session_lifetime soon"), 4, "soon"},
		{"flag with a word", app("authorize_post yes"), 4, "yes"},
		{"user without a name", app("user {\n\t\t}"), 4, "user"},
		{"user twice", app("user a {\n\t\t\tpassword_hash " + bcryptOfX + "\n\t\t}\n\t\tuser a {\n\t\t}"), 7, "user a"},
		{"user without a hash", app("user a {\n\t\t}"), 5, "password_hash"},
		{"user with an unknown word", app("user a {\n\t\t\tpasswd x\n\t\t}"), 5, "passwd"},
		{"invalid e-mail", app("user a {\n\t\t\temail alice\n\t\t}"), 5, "alice"},
		{"e-mail missing", app("user a {\n\t\t\temail\n\t\t}"), 5, "email"},
		{"e-mail with two words", app("user a {\n\t\t\temail a@b.example verified twice\n\t\t}"), 5, "twice"},
		{"e-mail with another word", app("user a {\n\t\t\temail a@b.example checked\n\t\t}"), 5, "checked"},
		{"fhir_user of another type", app("user a {\n\t\t\tfhir_user Device/1\n\t\t}"), 5, "Device/1"},
		{"client with the name of a user", app("user a {\n\t\t\tpassword_hash " + bcryptOfX + "\n\t\t}\n\t\tclient a {\n\t\t}"), 7, "name already used by a user"},
		{"user with the name of a client", app("client a {\n\t\t}\n\t\tuser a {\n\t\t}"), 6, "name already used by a client"},
		{"plain password", app("user a {\n\t\t\tpassword_hash hunter2\n\t\t}"), 5, "password_hash is neither"},
		{"second factor that is no base32", app("user a {\n\t\t\ttotp_secret 1189\n\t\t}"), 5, "totp_secret is not valid base32"},
		{"second factor that is short", app("user a {\n\t\t\ttotp_secret GEZDGNBV\n\t\t}"), 5, "totp_secret has 5 bytes"},
		{"lifetime that is too long", app("access_token_lifetime 48h"), 4, "invalid access_token_lifetime 2d: it must be between 1s and 24h"},
		{"lifetime that is too short", app("session_lifetime 10ms"), 4, "invalid session_lifetime 10ms: it must be between 1s and 30d"},
		{"grace that is too long", app("refresh_token_grace 90s"), 4, "invalid refresh_token_grace 1m30s: it must be between 1s and 1m"},
		{"idle for longer than valid", app("refresh_token_idle_lifetime 2d\n\t\trefresh_token_lifetime 36h"), 6, "invalid refresh_token_idle_lifetime 2d: it must be between 1s and 36h"},
		{"idp that is not there", client("redirect_uri https://x.example/cb\n\t\t\tidp hospitl\n\t\t}\n\t\tidp hospital {\n\t\t\tissuer https://i.example\n\t\t\tclient_id x"), 6, `client "c": idp "hospitl" is not configured: did you mean hospital?`},
		{"two users with an address that is linked by", app("user a {\n\t\t\tpassword_hash " + bcryptOfX + "\n\t\t\temail a@b.example verified\n\t\t}\n\t\tuser b {\n\t\t\tpassword_hash " + bcryptOfX + "\n\t\t\temail a@b.example verified\n\t\t}\n\t\tidp i {\n\t\t\tissuer https://i.example\n\t\t\tclient_id x\n\t\t\tlink email\n\t\t}"), 17, "the same verified e-mail address"},
		{"misspelt option", app("acess_token_lifetime 1h"), 4, "did you mean access_token_lifetime?"},
		{"misspelt option of a client", client("redirect_uris https://x.example/cb"), 5, "did you mean redirect_uri?"},
		{"misspelt scope", client("scope patient/*.sr"), 5, "did you mean patient/*.rs?"},
		{"misspelt scope of a provider", app("idp i {\n\t\t\tscopes user/Patient.raed\n\t\t}"), 5, "did you mean user/Patient.read?"},
		{"misspelt store", app("store memroy"), 4, "did you mean memory?"},
		{"issuer trusted twice", site("fhir_bearer {\n\t\ttrust https://x.example a\n\t\ttrust https://x.example b\n\t}"), 4, "duplicate trust https://x.example"},
		{"fhir_authorize without the app", site("fhir_authorize"), 2, "the fhir global option is required"},
		{"fhir_bearer without the app", site("respond ok\n\tfhir_bearer {\n\t\taudit_reads\n\t}"), 3, "the fhir global option is required"},
		{"trust without the app or an audience", site("fhir_bearer {\n\t\ttrust https://x.example\n\t}"), 2, "an audience is required"},
		{"introspection without the app or an audience", site("fhir_bearer {\n\t\tintrospect https://x.example {\n\t\t\tclient_id x\n\t\t\tclient_secret x\n\t\t}\n\t}"), 2, "an audience is required"},
		{"cors of clients without the app", site("fhir_expand {\n\t\tcors clients\n\t}"), 2, "cors clients"},
		{"client twice", app("client a {\n\t\t}\n\t\tclient a {\n\t\t}"), 6, "client a"},
		{"redirect URI over http", client("redirect_uri http://x.example/cb"), 5, `: redirect_uri "http://x.example/cb" must`},
		{"second redirect URI wrong", client("redirect_uri https://x.example/cb https://x.example/#f"), 5, "https://x.example/#f"},
		{"malformed scope", client("scope openid \"a b\""), 5, "a b"},
		{"unknown response type", client("response_type id_tokn"), 5, "id_tokn"},
		{"claim of another kind", app("user a {\n\t\t\tclaim sub bob\n\t\t}"), 5, "sub"},
		{"claim of another form", app("user a {\n\t\t\tclaim updated_at now\n\t\t}"), 5, "now"},
		{"claim of a user twice", app("user a {\n\t\t\tclaim gender x\n\t\t\tclaim gender y\n\t\t}"), 6, "gender"},
		{"compat of another word", client("compat no_iss"), 5, "no_iss"},
		{"consent sometimes", client("consent sometimes"), 5, "sometimes"},
		{"par optional", client("par optional"), 5, "optional"},
		{"unknown grant type", client("grant_type password"), 5, "password"},
		{"pkce of another word", client("pkce never"), 5, "never"},
		{"grant without a secret", client("grant_type client_credentials"), 6, "secret"},
		{"flow without a redirect URI", client("response_type token"), 6, "redirect_uri"},
		{"provider without a name", app("idp {\n\t\t}"), 4, "idp"},
		{"provider in upper case", app("idp Hospital {\n\t\t}"), 4, "Hospital"},
		{"provider named local", app("idp local {\n\t\t}"), 4, "local"},
		{"provider of an unknown kind", app("idp h saml {\n\t\t}"), 4, "saml"},
		{"provider twice", app("idp g google {\n\t\t\tclient_id x\n\t\t}\n\t\tidp g google {\n\t\t}"), 7, "idp g"},
		{"provider without an issuer", app("idp h {\n\t\t\tclient_id x\n\t\t}"), 6, "issuer"},
		{"provider without a client_id", app("idp h {\n\t\t\tissuer https://h.example\n\t\t}"), 6, "client_id"},
		{"provider over http", app("idp h {\n\t\t\tissuer http://h.example\n\t\t}"), 5, "http://h.example"},
		{"invalid domain", app("idp h {\n\t\t\tdomains @h.example\n\t\t}"), 5, "@h.example"},
		{"unsupported claim", app("idp h {\n\t\t\tclaim sub oid\n\t\t}"), 5, "sub"},
		{"claim twice", app("idp h {\n\t\t\tclaim email a\n\t\t\tclaim email b\n\t\t}"), 6, "email"},
		{"claim without theirs", app("idp h {\n\t\t\tclaim email\n\t\t}"), 5, "email"},
		{"subject of a device", app("idp h {\n\t\t\tfhir_user s Device/1\n\t\t}"), 5, "Device/1"},
		{"rule on another claim", app("idp h {\n\t\t\tallow name x\n\t\t}"), 5, "name"},
		{"rule on no address", app("idp h {\n\t\t\tallow email h.example\n\t\t}"), 5, "h.example"},
		{"revalidation without an interval", app("idp h {\n\t\t\trevalidate\n\t\t}"), 5, "revalidate"},
		{"revalidation too often", app("idp h {\n\t\t\trevalidate 30s\n\t\t}"), 5, "interval 30s must be between 1m0s and 1h0m0s"},
		{"revalidation too seldom", app("idp h {\n\t\t\trevalidate 2h\n\t\t}"), 5, "interval 2h0m0s must be between 1m0s and 1h0m0s"},
		{"outage shorter than the interval", app("idp h {\n\t\t\trevalidate 10m 5m\n\t\t}"), 5, "outage 5m0s must be between the interval"},
		{"outage of weeks", app("idp h {\n\t\t\trevalidate 10m 8d\n\t\t}"), 5, "outage 192h0m0s must be between the interval"},
		{"revalidation off, and an outage", app("idp h {\n\t\t\trevalidate off 8h\n\t\t}"), 5, "off"},
		{"search of a device", app("idp h {\n\t\t\tfhir_user_search Device email\n\t\t}"), 5, "use Practitioner, Patient, RelatedPerson or Person"},
		{"search by a name", app("idp h {\n\t\t\tfhir_user_search Practitioner name\n\t\t}"), 5, "identifier <system> <claim> or email"},
		{"search without a claim", app("idp h {\n\t\t\tfhir_user_search Practitioner identifier urn:x\n\t\t}"), 5, "identifier <system> <claim> or email"},
		{"token_claim twice", app("idp h {\n\t\t\ttoken_claim a\n\t\t\ttoken_claim a b\n\t\t}"), 6, "duplicate token_claim a"},
		{"token_claim with a dot", app("idp h {\n\t\t\ttoken_claim a.b\n\t\t}"), 5, `claim "a.b"`},
		{"scope_limit without a scope", app("scope_limit group g"), 4, "no scopes: list at least one"},
		{"scope_limit by a role", app("scope_limit role g user/*.rs"), 4, "group, claim or any"},
		{"scope_limit of an unlimited scope", app("scope_limit any openid"), 4, "cannot be limited"},
		{"scope_limit of no idp", app("scope_limit idp x group g user/*.rs"), 5, "idp x is not configured"},
		{"scope_limit by a claim of users here", app("scope_limit idp local any user/*.rs\n\t\tscope_limit idp local claim ward 7 user/*.rs"), 6, "idp local has no token_claim named ward"},
		{"scope_limit of an idp without the claim", app("idp h {\n\t\t\tissuer https://h.example\n\t\t\tclient_id c\n\t\t}\n\t\tscope_limit idp h claim ward 7 user/*.rs"), 9, "idp h has no token_claim named ward"},
		{"scope_limit by an undefined claim", app("scope_limit claim ward 7 user/*.rs"), 5, "no idp has a token_claim named ward"},
		{"link by another claim", app("idp h {\n\t\t\tlink name\n\t\t}"), 5, "name"},
		{"color without quotes", app("branding {\n\t\t\tcolor #0b5c8a\n\t\t}"), 5, "so quote the color"},
		{"color by name", app("branding {\n\t\t\tcolor blue\n\t\t}"), 5, "hexadecimal"},
		{"name of a site that is too long", app("branding {\n\t\t\tname " + strings.Repeat("a", 81) + "\n\t\t}"), 5, "80"},
		{"link over http", app("branding {\n\t\t\tlink help http://help.example/\n\t\t}"), 5, "must be an https URL"},
		{"link with a script", app("branding {\n\t\t\tlink forgot_password javascript:alert(1)\n\t\t}"), 5, "must be an https URL"},
		{"link to an unknown page", app("branding {\n\t\t\tlink terms /terms\n\t\t}"), 5, "help, privacy, imprint or forgot_password"},
		{"icon without a file", app("branding {\n\t\t\ticon hospital\n\t\t}"), 5, "hospital"},
		{"two icons of a provider", app("branding {\n\t\t\ticon h a.svg\n\t\t\ticon h b.svg\n\t\t}"), 6, "duplicate h"},
		{"branding in one line", app("branding Hospital"), 4, "Hospital"},
		{"branding twice", app("branding {\n\t\t}\n\t\tbranding {\n\t\t}"), 6, "branding"},
		{"parameter that the gateway sets", app("idp h {\n\t\t\trequest_parameter prompt login\n\t\t}"), 5, "sets this parameter itself"},
		{"parameter of apps that is meant for the gateway", app("idp h {\n\t\t\trequest_parameter resource\n\t\t}"), 5, "set a value"},
		{"parameter twice", app("idp h {\n\t\t\trequest_parameter hd a\n\t\t\trequest_parameter hd\n\t\t}"), 6, "duplicate request_parameter hd"},
		{"parameter with a space", app("idp h {\n\t\t\trequest_parameter \"a b\"\n\t\t}"), 5, "a b"},
		{"tenant by its domain", app("idp h {\n\t\t\ttenants hospital.example\n\t\t}"), 5, "use the tenant ID"},
		{"unsupported response_mode", app("idp h {\n\t\t\tresponse_mode fragment\n\t\t}"), 5, "form_post"},
		{"assertion_key without the key's ID", app("idp h {\n\t\t\tassertion_key key.p8\n\t\t}"), 5, "the key's ID"},
		{"Graph over http", app("idp h {\n\t\t\tgraph_groups http://graph.example\n\t\t}"), 5, "graph.example"},
		{"userinfo on", app("idp h {\n\t\t\tuserinfo on\n\t\t}"), 5, "off"},
		{"discovery URL as issuer", app("idp h {\n\t\t\tissuer https://h.example/.well-known/openid-configuration\n\t\t}"), 5, "usually https://h.example"},
		{"two claims for sub", app("idp h {\n\t\t\tsub oid sub\n\t\t}"), 5, "sub"},
		{"lockout on", app("lockout on"), 4, "on"},
		{"lockout off with a number", app("lockout off 5"), 4, "5"},
		{"lockout after no failures", app("lockout 0"), 4, "0"},
		{"lockout with a word", app("lockout often"), 4, "often"},
		{"lockout twice", app("lockout off\n\t\tlockout off"), 5, "lockout"},
		{"back-channel over http", client("backchannel_logout_uri http://x.example/"), 5, `: backchannel_logout_uri "http://x.example/" must`},
		{"post-logout redirect URI over http", client("post_logout_redirect_uri http://x.example/"), 5, `: post_logout_redirect_uri "http://x.example/" must`},
		{"post-logout redirect URI with a space", client("post_logout_redirect_uri \"https://x.example/ y\""), 5, `: post_logout_redirect_uri "https://x.example/ y" contains characters that are not permitted in a URI`},
		{"two back channels", client("backchannel_logout_uri https://x.example/ https://y.example/"), 5, "https://y.example/"},
		{"second factor without a key", app("user a {\n\t\t\ttotp_secret\n\t\t}"), 5, "totp_secret"},
		{"unknown store", app("store clay"), 4, "fhir.stores.clay"},
		{"store without a name", app("store"), 4, "store"},
		{"max_entries that is no number", app("store memory {\n\t\t\tmax_entries many\n\t\t}"), 5, "many"},
		{"unknown store", app("store clay"), 4, "fhir.stores.clay"},
		{"store with an unknown word", app("store file {\n\t\t\tpaht /x\n\t\t}"), 5, "paht"},
		{"store without a path", app("store file {\n\t\t\tpath\n\t\t}"), 5, "path"},
		{"store key that is too short", app("store_key c2hvcnQ="), 4, "openssl rand -base64 32"},
		{"store_key without a value", app("store_key"), 4, "store_key"},
		{"store key twice", app("store_key {env.A}\n\t\tstore_key {env.B}"), 5, "store_key"},
		{"store key without a closing brace", app("store_key {env.A"), 4, "brace"},
		{"invalid grace period", app("refresh_token_grace on"), 4, "on"},
		{"grace with two words", app("refresh_token_grace off off"), 4, "off"},
		{"keys of no file", client("jwks /nowhere/jwks.json"), 5, "/nowhere/jwks.json"},
		{"keys that are no JSON", client("jwks {x"), 5, "{x is not valid JSON"},
		{"keys that are none", client("jwks `{}`"), 6, "keys"},
		{"keys over http", client("jwks_uri http://c.example/jwks"), 6, "jwks_uri"},
		{"keys and a secret", client("secret x\n\t\t\tjwks_uri https://c.example/jwks"), 7, "mutually exclusive"},
		{"ID tokens by a shared secret", client("id_token_alg HS256"), 5, "HS256"},
		{"fhir_authorize with a block", site("fhir_authorize {\n\t\tissuer x\n\t}"), 3, "issuer"},
		{"fhir_bearer with an unknown word", site("fhir_bearer {\n\t\ttrus x\n\t}"), 3, "trus"},
		{"trusted issuer over http", site("fhir_bearer {\n\t\ttrust http://x.example\n\t}"), 3, "http://x.example"},
		{"unknown claim of an issuer", site("fhir_bearer {\n\t\ttrust https://x.example a {\n\t\t\tclaim role roles\n\t\t}\n\t}"), 4, "use patient or fhirUser"},
		{"claim of an issuer twice", site("fhir_bearer {\n\t\ttrust https://x.example a {\n\t\t\tclaim patient a\n\t\t\tclaim patient b\n\t\t}\n\t}"), 5, "duplicate patient"},
		{"two names of a patient", site("fhir_bearer {\n\t\ttrust https://x.example a {\n\t\t\tclaim patient a b\n\t\t}\n\t}"), 4, "with one name"},
		{"scope of an issuer twice", site("fhir_bearer {\n\t\ttrust https://x.example a {\n\t\t\tscope r user/*.rs\n\t\t\tscope r user/*.r\n\t\t}\n\t}"), 5, "duplicate r"},
		{"scope of an issuer without ours", site("fhir_bearer {\n\t\ttrust https://x.example a {\n\t\t\tscope r\n\t\t}\n\t}"), 4, "wrong argument count"},
		{"trust with a surplus word", site("fhir_bearer {\n\t\ttrust https://x.example a b\n\t}"), 3, "after 'b'"},
		{"introspection over http", site("fhir_bearer {\n\t\tintrospect http://x.example\n\t}"), 3, "http://x.example"},
		{"introspection without credentials", site("fhir_bearer {\n\t\tintrospect https://x.example/i\n\t}"), 3, "client_id"},
		{"fhir_expand without definitions", site("fhir_expand {\n\t\tdefinitions\n\t}"), 3, "definitions"},
		{"ttl on", site("fhir_expand {\n\t\tttl on\n\t}"), 3, "on"},
		{"ttl off with a word", site("fhir_expand {\n\t\tttl off 1h\n\t}"), 3, "1h"},
		{"stale for nothing", site("fhir_expand {\n\t\tstale 0s\n\t}"), 3, "0s"},
		{"stale three times", site("fhir_expand {\n\t\tstale 1h 1h 1h\n\t}"), 3, "1h"},
		{"vary by weather", site("fhir_expand {\n\t\tvary_by weather\n\t}"), 3, "weather"},
		{"upstream without a URL", site("fhir_expand {\n\t\tupstream {\n\t\t\tttl 1s\n\t\t}\n\t}"), 3, "upstream"},
		{"upstream over http", site("fhir_expand {\n\t\tupstream http://tx.example/r4\n\t}"), 3, "http://tx.example"},
		{"upstream with an unknown word", site("fhir_expand {\n\t\tupstream https://tx.example {\n\t\t\ttoken x\n\t\t}\n\t}"), 4, "token"},
		{"route without a URL", site("fhir_expand {\n\t\troute http://loinc.org\n\t}"), 3, "http://loinc.org"},
		{"word that is almost a known one", client("consent requird"), 5, "did you mean required?"},
		{"value that a variable left out", app("user a {\n\t\t\tpassword_hash {$NO_SUCH_HASH}\n\t\t}"), 5, "password_hash has no value; check that its {$VARIABLE}"},
		{"value that an empty variable left", client("secret \"{$NO_SUCH_SECRET}\""), 5, "secret has no value; check that its {$VARIABLE}"},
		{"values that a variable left out", client("redirect_uri {$NO_SUCH_ADDRESS}"), 5, "redirect_uri has no value; check that its {$VARIABLE}"},
		{"placeholder without its end", client("secret {env.APP_SECRET"), 5, "{env.APP_SECRET has no closing brace"},
		{"placeholder of a hash without its end", app("user a {\n\t\t\tpassword_hash {file./run/a.hash\n\t\t}"), 5, "{file./run/a.hash has no closing brace"},
		{"invalid header name", site("fhir_bearer {\n\t\ttrust https://x.example api\n\t\tforward_header \"X User\"\n\t}"), 4, "X User"},
		{"header with a star within", site("fhir_bearer {\n\t\ttrust https://x.example api\n\t\tforward_header X-*-Id\n\t}"), 4, "X-*-Id"},
		{"invalid birthdate", app("user a {\n\t\t\tclaim birthdate 2000-13-01\n\t\t}"), 5, "2000-13-01"},
		{"guard without anybody to trust", site("fhir_bearer"), 2, "trust or introspect"},
		{"core on", site("fhir_expand {\n\t\tcore on\n\t}"), 3, "on"},
		{"entries below one", site("fhir_expand {\n\t\tmax_entries 0\n\t}"), 3, "0"},
		{"fhir_outcome with a surplus word", site("fhir_outcome /fhir/* x"), 2, "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { gatewaytest.CheckCaddyfileError(t, tt.caddyfile, tt.line, tt.word) })
	}
}

// FuzzCaddyfile parses arbitrary text in each block that the module defines.
func FuzzCaddyfile(f *testing.F) {
	example := gatewaytest.ReadFile(f, "../../Caddyfile.example")
	f.Add(example)
	for _, block := range []string{"fhir {\nuser a {\nemail x verified\n", "client c {\nredirect_uri\n}", "store memory {\nmax_entries -1", "}{\"`<<X", "{$X:}"} {
		f.Add("{\n\tfhir {\n" + block + "\n}\n}\n")
	}
	f.Add("localhost {\nfhir_bearer {\nforward_header *\n}\nfhir_expand {\ncore off\ndefinitions a\n}\nhandle_errors {\nfhir_outcome x\n}\n}")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "import") || strings.Contains(text, "{$") {
			t.Skip("reads files or the environment, which is not ours to test")
		}
		document, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
		if err == nil && !json.Valid(document) {
			t.Errorf("no JSON: %s", document)
		}
	})
}

// A name is rejected if an earlier user or client has it, because tokens of both would have the same sub. A rejected name
// remains available.
func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	const crowd = 2000
	kinds := []string{"user", "client"}
	for _, at := range []int{0, crowd / 2, crowd - 1} {
		reserved := reservedNames{}
		for i := range crowd {
			if err := reserved.reserver(kinds[i%2])("name-" + strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		for _, kind := range kinds {
			err := reserved.reserver(kind)("name-" + strconv.Itoa(at))
			if want := nameTakenError(kind, kinds[at%2], "name-"+strconv.Itoa(at)); err == nil || err.Error() != want.Error() {
				t.Errorf("another %s: %v, want %v", kind, err, want)
			}
			if err := reserved.reserver(kind)("bad\n"); err == nil || len(reserved) != crowd {
				t.Errorf("a bad name of a %s: %v, %d taken", kind, err, len(reserved))
			}
		}
	}
}

func TestBrandingResolved(t *testing.T) {
	t.Parallel()
	const svg = `<svg xmlns="http://www.w3.org/2000/svg"/>`
	tests := []struct{ name, image, err string }{
		{"SVG", svg, ""},
		{"text", "a logo", "logo is not a PNG, SVG or WebP image"},
		{"too large", svg + strings.Repeat(" ", 300<<10), "logo is larger than 256 KiB"},
	}
	for _, tt := range tests {
		file := filepath.Join(t.TempDir(), "logo")
		gatewaytest.ReplaceFile(t, file, tt.image)
		resolved, err := (&Branding{Name: "Clinic", Logo: file, Color: "0b5c8a", Links: map[string]string{"help": "/help"}}).resolve()
		switch {
		case tt.err == "" && (err != nil || resolved.Logo == nil || resolved.Name != "Clinic" || resolved.Color != "0b5c8a" || resolved.Links["help"] != "/help"):
			t.Errorf("%s: %+v, %v", tt.name, resolved, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), file)):
			t.Errorf("%s: %v", tt.name, err)
		}
		icons, iconErr := (&Branding{Icons: map[string]string{"hospital": file}}).resolve()
		if (iconErr == nil) != (tt.err == "") || iconErr == nil && icons.Icons["hospital"] == nil {
			t.Errorf("icon, %s: %v", tt.name, iconErr)
		}
	}
	if _, err := (&Branding{Logo: filepath.Join(t.TempDir(), "none")}).resolve(); err == nil {
		t.Error("no error for a missing file")
	}
	if resolved, err := new(Branding).resolve(); err != nil || resolved.Logo != nil {
		t.Errorf("%+v, %v", resolved, err)
	}
}
