package e2e

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/loinc/loinctest"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/snomedtest"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"golang.org/x/oauth2"
)

// guide is a page in docs, or a section of a page, adapted to the addresses of the test.
type guide struct{ page, text string }

// readGuide reads a page from docs and replaces pairs of old and new text.
func readGuide(t *testing.T, page string, oldNew ...string) guide {
	t.Helper()
	read, err := os.ReadFile("../docs/" + page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(read)
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			t.Fatalf("%s has no %q", page, oldNew[i])
		}
		text = strings.ReplaceAll(text, oldNew[i], oldNew[i+1])
	}
	return guide{page, text}
}

// section returns the section of the page below a heading.
func (g guide) section(t *testing.T, heading string) guide {
	t.Helper()
	_, section, found := strings.Cut(g.text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %s", g.page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return guide{g.page, section}
}

// blocks returns the code blocks in a language, in order, joined with a newline.
func (g guide) blocks(language string) string { return strings.Join(g.blockList(language), "\n") }

// block returns the code block in a language that contains the text.
func (g guide) block(t *testing.T, language, content string) string {
	t.Helper()
	for _, block := range g.blockList(language) {
		if strings.Contains(block, content) {
			return block
		}
	}
	t.Fatalf("%s has no block with %q", g.page, content)
	return ""
}

func (g guide) blockList(language string) (blocks []string) {
	for _, found := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)\n```").FindAllStringSubmatch(g.text, -1) {
		blocks = append(blocks, found[1])
	}
	return blocks
}

// startGuide starts a command that runs a gateway with its folders in home. The caller must wait until the gateway responds.
func startGuide(t *testing.T, name, home, issuer string, environ []string, command string, args ...string) *gateway {
	t.Helper()
	g := &gateway{
		issuer: issuer, admin: mustFreeAddress(t), rootFile: filepath.Join(home, "data/caddy/pki/authorities/local/root.crt"),
	}
	g.environ = append(environ, "HOME="+home, "XDG_DATA_HOME="+filepath.Join(home, "data"), "XDG_CONFIG_HOME="+filepath.Join(home, "config"), "CADDY_ADMIN="+g.admin)
	var err error
	if g.process, err = startProcess(name, g.environ, command, args...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.process.stop)
	return g
}

// TestGuideHAPI follows docs/start/hapi.md from a clone in an empty folder to the record in the sandbox app. It uses the binary
// and HAPI server of the other tests instead of building the gateway and pulling HAPI's image, because a build takes minutes
// and an image requires a registry.
func TestGuideHAPI(t *testing.T) {
	skipOnReplicas(t, "the guide starts one gateway")
	h, home, address := hapiServer(t), t.TempDir(), mustFreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	source, err1 := filepath.Abs("..")
	binary, err2 := filepath.Abs(caddyBinary)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	guide := readGuide(t, "start/hapi", "localhost:8080", strings.TrimSuffix(strings.TrimPrefix(h.base, "http://"), "/fhir"),
		"git clone https://github.com/caddy-fhir/caddy-fhir", "git clone -q "+source+" caddy-fhir", "go run ./caddymodule/build", "cp "+binary+" caddy", "=localhost:2020", "")
	_, hint, _ := strings.Cut(guide.text, "If a port is in use, run `")
	hint, _, _ = strings.Cut(hint, "`")
	_, script, _ := strings.Cut(guide.blocks("sh"), "hapiproject/hapi:latest\n")
	script = strings.Replace(script, "\nexport FHIR_BACKEND", "\n"+strings.ReplaceAll(hint, "9443", port)+" &&\nexport FHIR_BACKEND", 1)
	script = "cd " + home + " && " + strings.Replace(script, "./caddy run", "exec ./caddy run", 1)
	g := startGuide(t, "guide-hapi", home, "https://"+address, nil, "bash", "-euo", "pipefail", "-c", script)
	if err := g.process.ready(g.isReady); err != nil {
		t.Fatal(err)
	}
	r := newRequest(t, http.MethodGet, g.issuer+"/fhir/Patient/ada", "")
	if got := send(t, g.client, r); got.status != http.StatusUnauthorized {
		t.Errorf("%d without a token", got.status)
	}
	r.Header.Set("Authorization", "Bearer "+g.userToken(t, "openid", "user/*.rs").AccessToken)
	if got := send(t, g.client, r).is(t, http.StatusOK); !strings.Contains(string(got.body), "Lovelace") {
		t.Errorf("%s", got.body)
	}
	launchForAda(t, g)
}

// launchForAda follows the guide in a browser until the sandbox app shows the statuses of the requests.
func launchForAda(t *testing.T, g *gateway) {
	t.Helper()
	ctx := newBrowser(t)
	perform(t, ctx, chromedp.Navigate(g.issuer+"/oauth2/launch_page"), chromedp.WaitVisible(chromedp.ID("username")))
	perform(t, withShortTimeout(t, ctx), chromedp.KeyEvent(userName+kb.Tab+userPassword+kb.Enter), chromedp.WaitVisible("//h1[text()='Launch an app']"))
	perform(t, withShortTimeout(t, ctx), chromedp.Click(chromedp.CSS("input[value=ada]")), chromedp.Click("//button[text()='Open the app']"),
		chromedp.WaitVisible(chromedp.CSS("button[value=allow]")), chromedp.Click(chromedp.CSS("button[value=allow]")),
		chromedp.WaitVisible(chromedp.CSS("#record .answers li")))
	checkStatuses(t, ctx, "record", "200", "200", "200", "200")
}

// TestGuideExpand runs the gateway as in docs/guides/expand-only.md and sends the request on that page.
func TestGuideExpand(t *testing.T) {
	skipOnReplicas(t, "the guide starts one gateway")
	address, file := mustFreeAddress(t), filepath.Join(t.TempDir(), "Caddyfile")
	_, port, _ := net.SplitHostPort(address)
	guide := readGuide(t, "guides/expand-only", ":8090", ":"+port, "localhost:8080", fhirServer.address)
	writeText(t, file, "{\n\tadmin {$CADDY_ADMIN}\n}\n"+guide.blocks("caddyfile"))
	g := startGuide(t, "guide-expand", t.TempDir(), "http://"+address, nil, caddyBinary, "run", "--config", file)
	var printed string
	if err := g.process.ready(func() (err error) {
		printed, err = g.shell(t, guide.blocks("sh"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(printed, `"Female"`) {
		t.Error(printed)
	}
}

// TestGuideSNOMED follows docs/guides/snomed-ct.md with a synthetic edition and concept.
func TestGuideSNOMED(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "SnomedCT.zip")
	if err := (snomedtest.Edition{Concepts: 1000}).WriteZip(archive); err != nil {
		t.Fatal(err)
	}
	followReleaseGuide(t, "snomed-ct", `"Clinical finding"`, "/srv/snomed/SnomedCT_InternationalRF2_PRODUCTION_20260801T120000Z.zip", archive,
		"50043002", snomedtest.ClinicalFinding, "filter=ast", "filter=clinical")
}

// TestGuideLOINC follows docs/guides/loinc.md with a synthetic release.
func TestGuideLOINC(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "Loinc_2.99.zip")
	if err := (loinctest.Release{Terms: 1000, Parts: 500, Languages: []string{"deDE"}}).WriteZip(archive); err != nil {
		t.Fatal(err)
	}
	followReleaseGuide(t, "loinc", `"display":"deDE `, "/srv/loinc/Loinc_2.82.zip", archive, "filter=gluc+bl", "filter=dede")
}

// followReleaseGuide runs the gateway as in a guide and sends the request on that page. The response must contain want.
func followReleaseGuide(t *testing.T, page, want string, replacements ...string) {
	t.Helper()
	skipOnReplicas(t, "the guide starts one gateway")
	address, folder := mustFreeAddress(t), t.TempDir()
	_, port, _ := net.SplitHostPort(address)
	guide := readGuide(t, "guides/"+page, append([]string{":8090", ":" + port}, replacements...)...)
	file := filepath.Join(folder, "Caddyfile")
	writeText(t, file, "{\n\tadmin {$CADDY_ADMIN}\n}\n"+guide.blocks("caddyfile"))
	g := startGuide(t, "guide-"+page, folder, "http://"+address, nil, caddyBinary, "run", "--config", file)
	var printed string
	if err := g.process.ready(func() (err error) {
		printed, err = g.shell(t, guide.blocks("sh"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(printed, want) {
		t.Error(printed)
	}
}

// shell runs the commands of a guide. It defines a function caddy that adds the address of the gateway's admin API.
func (g *gateway) shell(t *testing.T, script string) (string, error) {
	t.Helper()
	script = `caddy() { case $1 in fhir-check|validate) "$CADDY_BIN" "$@" ;; *) "$CADDY_BIN" "$1" --address="$CADDY_ADMIN" "${@:2}" ;; esac; }
` + strings.ReplaceAll(script, "localhost:2019", g.admin)
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	command.Dir = t.TempDir()
	command.Env = append(append(command.Environ(), g.environ...), "CADDY_BIN="+caddyBinary)
	output, err := command.CombinedOutput()
	return string(output), err
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// documentedCommand searches the pages in a folder of docs for a command that contains the text. It returns the first block of
// commands or, if there is none, the first code span, and the page.
func documentedCommand(t *testing.T, folder, content string) (page, command string) {
	t.Helper()
	files, err := filepath.Glob("../docs/" + folder + "/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d pages in docs/%s: %v", len(files), folder, err)
	}
	for _, pattern := range []string{"(?s)\n```sh\n(.*?)\n```", "`([^`\n]+)`"} {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
				if strings.Contains(found[1], content) {
					return file, found[1]
				}
			}
		}
	}
	t.Fatalf("no page in docs/%s has the command %q", folder, content)
	return "", ""
}

// TestGuideCommands runs the commands for a running gateway that the pages contain. After the commands for a key
// compromise, all earlier tokens are invalid.
func TestGuideCommands(t *testing.T) {
	skipOnReplicas(t, "backups are of one gateway")
	if _, err := exec.LookPath("jq"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("jq is not installed")
	}
	g := startTestGateway(t, "guide-commands", fhirServer.address)
	before, refreshable := g.userToken(t, "openid", "user/*.rs").AccessToken, g.offline(t)
	g.fhir(t, before, http.MethodGet, "Patient", "").is(t, http.StatusOK)
	for _, command := range []struct{ folder, content, want string }{
		{"guides", "/fhir/expansions", ""},
		{"operate", "curl -fsS localhost:2019/fhir/backup", "keys/"},
		{"reference", "localhost:2019/metrics", "caddy_fhir_bearer_decisions_total"},
		{"operate", "curl -fsS localhost:2019/fhir/ready", `"ready":true`},
		{"operate", "caddy fhir-log growth-chart", "Nothing found for client"},
		{"guides", "caddy fhir-keys retire -- \"$kid\"", "KID"},
		{"guides", "caddy fhir-grants revoke --client \"$client\"", ""},
	} {
		file := filepath.Join(t.TempDir(), "Caddyfile")
		writeExample(t, file, "localhost:8443", mustFreeAddress(t))
		page, found := documentedCommand(t, command.folder, command.content)
		script := strings.NewReplacer(" Caddyfile", " "+file, "growth-chart", "demo-app", "caddy fhir-check", "FHIR_BACKEND= caddy fhir-check").Replace(found)
		if printed, err := g.shell(t, script); err != nil || !strings.Contains(printed, command.want) {
			t.Errorf("%s: %v, want %q:\n%s", page, err, command.want, printed)
		}
	}
	g.fhir(t, before, http.MethodGet, "Patient", "").is(t, http.StatusUnauthorized)
	if _, err := g.refresh(t, g.demoApp(t), refreshable); err == nil {
		t.Error("a refresh token still works")
	}
	g.fhir(t, g.userToken(t, "openid", "user/*.rs").AccessToken, http.MethodGet, "Patient", "").is(t, http.StatusOK)
}

// TestGuideFirstApp opens the page of docs/start/first-app.md in a browser, signs in and waits for the patient's record.
func TestGuideFirstApp(t *testing.T) {
	skipOnReplicas(t, "one gateway is enough")
	app := httptest.NewServer(nil)
	defer app.Close()
	address := mustFreeAddress(t)
	app.URL = strings.Replace(app.URL, "127.0.0.1", "localhost", 1)
	guide := readGuide(t, "start/first-app", "http://localhost:3000/", app.URL+"/", "https://localhost:8443", "https://"+address)
	app.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, guide.blocks("html"))
	})
	startTestGatewayAt(t, "guide-first-app", address, "", "\t\tclient demo-app {", guide.blocks("caddyfile")+"\n\t\tclient demo-app {")
	ctx := newBrowser(t)
	perform(t, ctx, chromedp.Navigate(app.URL), chromedp.Click(chromedp.CSS("button")), chromedp.WaitVisible(chromedp.ID("username")))
	perform(t, withShortTimeout(t, ctx), chromedp.KeyEvent(userName+kb.Tab+userPassword+kb.Enter), chromedp.WaitVisible("//h1[text()='Choose a patient']"))
	perform(t, withShortTimeout(t, ctx), chromedp.Click(chromedp.CSS("#results button")), confirmPatient(), chromedp.WaitVisible(`//pre[contains(., '"resourceType": "Patient"')]`))
}

// TestGuideSandbox registers the app of docs/guides/sandbox.md, with which nora reads her record, and starts an export with the
// commands on that page.
func TestGuideSandbox(t *testing.T) {
	skipOnReplicas(t, "the page has one gateway")
	if _, err := exec.LookPath("jq"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("jq is not installed")
	}
	app := readGuide(t, "guides/sandbox").section(t, "Register your app").blocks("caddyfile")
	g := startTestGateway(t, "guide-sandbox", "", "\t\tclient demo-app {", app+"\n\t\tclient demo-app {")
	address := strings.TrimPrefix(g.issuer, "https://")
	client, verifier := g.demoApp(t, "launch/patient", "openid", "patient/*.rs"), oauth2.GenerateVerifier()
	client.ClientID, client.RedirectURL = "my-app", "http://localhost:3000/callback"
	start := client.AuthCodeURL("1", oauth2.S256ChallengeOption(verifier))
	end := g.newPerson(t).walk(t, start, client.RedirectURL, url.Values{"username": {"nora"}, "password": {"nora-demo-password"}})
	token, err := client.Exchange(g.context(t), end.Query().Get("code"), oauth2.VerifierOption(verifier))
	if err != nil || token.Extra("patient") != "p01" {
		t.Fatalf("%v: %v", err, token)
	}
	found := g.fhir(t, token.AccessToken, http.MethodGet, "Observation?patient=p01", "").is(t, http.StatusOK)
	if !strings.Contains(string(found.body), `"subject":{"reference":"Patient/p01"`) {
		t.Errorf("%s", found.body)
	}
	printed, err := g.shell(t, readGuide(t, "guides/sandbox", "localhost:8443", address).section(t, "Export in bulk").blocks("sh"))
	if err != nil || !strings.Contains(printed, "content-location: ") {
		t.Errorf("%v: %s", err, printed)
	}
}

// startLocally starts the gateway of a guide on localhost, with a certificate from Caddy's local authority and the example's alice.
func (g guide) startLocally(t *testing.T, name, address, caddyfile string, environ ...string) *gateway {
	t.Helper()
	folder := t.TempDir()
	file := withAlice(t, folder, caddyfile, "\tskip_install_trust\n\tauto_https disable_redirects\n")
	started := startGuide(t, name, folder, "https://"+address, append(environ, "CURL_CA_BUNDLE="+filepath.Join(folder, "data/caddy/pki/authorities/local/root.crt")),
		caddyBinary, "run", "--config", file)
	if err := started.process.ready(started.isReady); err != nil {
		t.Fatal(err)
	}
	return started
}

// TestGuideEHR registers a launch with the command of docs/guides/ehr.md and checks the launch URL in the response.
func TestGuideEHR(t *testing.T) {
	skipOnReplicas(t, "the guide starts one gateway")
	address, records := mustFreeAddress(t), mustFreeAddress(t)
	guide := readGuide(t, "guides/ehr", "https://fhir.hospital.example", "https://"+address, "\nfhir.hospital.example {", "\nhttps://"+address+" {", "localhost:8080", records)
	caddyfile := guide.blocks("caddyfile") + "\nhttp://" + records + " {\n\tfhir_sample\n}\n"
	g := guide.startLocally(t, "guide-ehr", address, caddyfile, "EHR_SECRET="+strings.Repeat("5ec12e7a", 4))
	for path, resource := range map[string]string{
		"Patient/ada":  `{"resourceType":"Patient","id":"ada"}`,
		"Encounter/v1": `{"resourceType":"Encounter","id":"v1","status":"in-progress","class":{"code":"AMB"},"subject":{"reference":"Patient/ada"}}`,
	} {
		r := newRequest(t, http.MethodPut, "http://"+records+"/fhir/R4/"+path, resource)
		r.Header.Set("Content-Type", "application/fhir+json")
		send(t, g.client, r).is(t, http.StatusCreated)
	}
	want := regexp.MustCompile(`^\{"launch":"[^"]+","expires_in":600,"launch_url":"https://chart\.hospital\.example/launch\.html\?iss=[^"&]+&launch=[^"]+"\}$`)
	if printed, err := g.shell(t, guide.blocks("sh")); err != nil || !want.MatchString(strings.ReplaceAll(strings.TrimSpace(printed), `\u0026`, "&")) {
		t.Errorf("%v: %s", err, printed)
	}
}

// TestGuideTerminologyServer runs the gateway of docs/guides/terminology-server.md: the second $expand is answered from memory,
// each counts against the quota, and tokens without the scope reach neither the cache nor the server.
func TestGuideTerminologyServer(t *testing.T) {
	skipOnReplicas(t, "the guide starts one gateway")
	if _, err := exec.LookPath("jq"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("jq is not installed")
	}
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, `{"resourceType":"ValueSet","status":"active","url":"http://snomed.info/sct?fhir_vs=isa/73211009","expansion":{"timestamp":"2026-01-01T00:00:00Z","total":1,"contains":[
			{"system":"http://snomed.info/sct","code":"44054006","display":"Diabetes mellitus type 2"}]}}`)
	}))
	defer server.Close()
	address := mustFreeAddress(t)
	guide := readGuide(t, "guides/terminology-server", "https://tx.hospital.example", "https://"+address, "\ntx.hospital.example {", "\nhttps://"+address+" {",
		"localhost:8080", strings.TrimPrefix(server.URL, "http://")).section(t, "Keep licensed content private")
	g := guide.startLocally(t, "guide-terminology", address, guide.blocks("caddyfile"), "CODING_SERVICE_SECRET="+strings.Repeat("5ec12e7a", 4),
		"HOSPITAL_CLIENT_ID=gateway", "HOSPITAL_CLIENT_SECRET=hospital-secret-of-the-gateway")
	script := guide.blocks("sh")
	for range 2 {
		if printed, err := g.shell(t, script); err != nil || !strings.Contains(printed, `"Diabetes mellitus type 2"`) {
			t.Fatalf("%v: %s", err, printed)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("the terminology server answered %d requests, want 1", n)
	}
	printed, err := g.shell(t, strings.Replace(script, "curl -fsS -G", "curl -sSi -G", 1))
	if err != nil || !strings.Contains(strings.ToLower(printed), `ratelimit: "terminology";r=594`) {
		t.Errorf("%v: no third $expand counts as two of 600: %s", err, printed)
	}
	for name, token := range map[string]string{"no token": "", "a token without the scope": g.userToken(t, "openid").AccessToken} {
		want := http.StatusUnauthorized
		if token != "" {
			want = http.StatusForbidden
		}
		for _, path := range []string{"ValueSet/$expand?url=http://snomed.info/sct?fhir_vs", "CodeSystem/sct", "CodeSystem/$lookup?system=http://snomed.info/sct&code=44054006"} {
			r := newRequest(t, http.MethodGet, g.issuer+"/fhir/"+path, "")
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			if got := send(t, g.client, r); got.status != want {
				t.Errorf("%s: %s: status %d, want %d", name, path, got.status, want)
			}
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("denied requests reached the terminology server: %d", n)
	}
}

// TestGuideRegistration registers an app with the command of docs/guides/self-registration.md and approves it.
func TestGuideRegistration(t *testing.T) {
	skipOnReplicas(t, "the guide starts one gateway")
	address := mustFreeAddress(t)
	guide := readGuide(t, "guides/self-registration", "https://fhir.hospital.example", "https://"+address, "\nfhir.hospital.example {", "\nhttps://"+address+" {", "localhost:8080", fhirServer.address)
	secret := "REGISTRATION_TOKEN=" + strings.Repeat("5ec12e7a", 4)
	g := guide.startLocally(t, "guide-registration", address, guide.blocks("caddyfile"), secret)
	printed, err := g.shell(t, guide.block(t, "sh", "/oauth2/register"))
	id := regexp.MustCompile(`"client_id":"(registered-[^"]+)"`).FindStringSubmatch(printed)
	if err != nil || id == nil {
		t.Fatalf("%v: %s", err, printed)
	}
	if printed, err = g.shell(t, strings.ReplaceAll(guide.block(t, "sh", "approve"), "<client_id>", id[1])); err != nil || !strings.Contains(printed, id[1]) {
		t.Errorf("%v: %s", err, printed)
	}
}

// authlibFolder contains Authlib, installed by .ci/run.
const authlibFolder = "python/packages"

// TestGuideAuthlib runs docs/guides/backend-service.md: it creates the key, registers the client and runs the program, which
// requests a second token with a new assertion.
func TestGuideAuthlib(t *testing.T) {
	skipOnReplicas(t, "the guide starts one gateway")
	packages, err1 := filepath.Abs(authlibFolder)
	_, err2 := os.Stat(packages)
	if err := errors.Join(err1, err2); err != nil {
		t.Skipf("%v: pip install --target e2e/%s Authlib==1.9.10 requests==2.34.2", err, authlibFolder)
	}
	home, address := t.TempDir(), mustFreeAddress(t)
	guide := readGuide(t, "guides/backend-service", "https://localhost:8443", "https://"+address, "/srv/keys/", home+"/",
		"python3 -m venv venv && venv/bin/pip install Authlib requests\n", "", "venv/bin/python", "python3")
	keys, run, found := strings.Cut(guide.blocks("sh"), "\nREQUESTS_CA_BUNDLE")
	if !found {
		t.Fatalf("the page does not run its program: %s", guide.text)
	}
	shell := func(script string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		command.Dir, command.Env = home, append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "XDG_DATA_HOME="+filepath.Join(home, "data"))
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return string(output)
	}
	shell(keys)
	file := filepath.Join(home, "Caddyfile")
	writeExample(t, file, "localhost:8443", address, "\t\tclient demo-app {", guide.blocks("caddyfile")+"\n\t\tclient demo-app {")
	g := startGuide(t, "guide-authlib", home, "https://"+address, []string{"FHIR_BACKEND="}, caddyBinary, "run", "--config", file)
	if err := g.process.ready(g.isReady); err != nil {
		t.Fatal(err)
	}
	program := guide.blocks("python")
	last := program[strings.LastIndex(program, "\n"):]
	writeText(t, filepath.Join(home, "feed.py"), program+"\nfeed.token = {**feed.token, 'expires_at': 1}"+last+"\n")
	printed := shell("REQUESTS_CA_BUNDLE" + run)
	if counts := strings.Fields(printed); len(counts) != 2 || counts[0] == "0" || counts[0] != counts[1] {
		t.Errorf("printed %q, want the number of observations twice", printed)
	}
}
