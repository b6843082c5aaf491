package page_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page/pagetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// samples returns views of every template, by name.
func samples() map[string]page.View {
	ways := []page.ProviderLink{{"General Hospital", "/oauth2/login/hospital", "/oauth2/logo/hospital?1"}, {"Google", "/oauth2/login/google", ""}}
	links := page.AppLinks{"Growth Chart", page.LogoOf("growth-chart"), "https://chart.example/policy", "https://chart.example/terms"}
	alice := page.Person{"Alice Adams", "alice@example.org"}
	john := page.Patient{"1", "John Smith", "1970-05-01", "12345", "1 High Street, Springfield", page.T("male"), page.Plural("%d year", "%d years", 56)}
	jane := page.Patient{"2", "Jane Smith", "1972-01-12", "12346", "", page.T("female"), page.T("deceased")}
	return map[string]page.View{
		"signin":        {Data: page.SignIn{Client: "Growth Chart", Links: links, OffersPassword: true, ForgotPassword: "/forgot", AcceptsEmail: true, Providers: ways}},
		"signin-wrong":  {Data: page.SignIn{Client: "Growth Chart", Username: "alice", Problem: page.SignInProblem{Failed: true}, OffersPassword: true}},
		"signin-other":  {Data: page.SignIn{Client: "Growth Chart", OffersPassword: true, Problem: page.SignInProblem{OtherPerson: true}}},
		"signin-wait":   {Data: page.SignIn{Client: "Growth Chart", Username: "alice", Problem: page.SignInProblem{Wait: 30 * time.Second, ProviderDown: "Clinic", BusyWait: time.Second}, OffersPassword: true}},
		"signin-outage": {Data: page.SignIn{Client: "Growth Chart", Problem: page.SignInProblem{ProviderDown: "Clinic", TryAgain: "/oauth2/login/clinic?request=x"}, Providers: ways[:1]}},
		"secondfactor":  {Data: page.SecondFactor{Client: "Growth Chart", Person: alice, AcceptsCode: true, WrongCode: true}}, "secondfactor-wait": {Data: page.SecondFactor{Client: "Growth Chart", AcceptsCode: true, Wait: 90 * time.Second}},
		"refused": {Data: page.SignInRejected{Client: "Growth Chart", Person: alice, Provider: "Clinic", SupportsLogout: true}}, "refused-page": {Data: page.SignInRejected{Person: alice, Provider: "Clinic"}},
		"selectaccount":             {Data: page.SelectAccount{Client: "Growth Chart", Person: alice}},
		"selectaccount-unconfirmed": {Data: page.SelectAccount{SignIn: "sealed", Person: alice}},
		"selectaccount-other":       {Data: page.SelectAccount{SignIn: "sealed", Client: "Growth Chart"}},
		"consent": {Script: "consent", Data: page.Consent{
			Client: "Growth Chart", Links: links, RedirectHost: "chart.example", Person: alice, SelfRegistered: true, Patient: page.ConsentPatient{"ada", "Ada Lovelace", "1815-12-10", "12345"},
			RequiredItems: []*page.Text{page.T("See which patient you chose")}, Groups: []page.ConsentGroup{
				{page.T("Your health records"), []page.ConsentItem{{
					Name: "may patient/Condition.cruds", Text: page.T("conditions and diagnoses"), Detail: page.T("read"), PartlyTicked: true,
					Permissions: []page.ConsentItem{{Name: "may patient/Condition.cruds read", Text: page.T("read"), Ticked: true}},
					Parts:       []page.ConsentItem{{Name: "may patient/Condition.cruds problem-list-item", Text: page.T("problem list")}},
				}}},
				{page.T("How long access lasts"), []page.ConsentItem{{
					Name: "may offline_access", Text: page.T("Keep access when you’re not using the app"), Ticked: true,
					Times: []page.ConsentTime{{"", page.T("Until you end access, at most %s", page.Plural("%d day", "%d days", 90)), true}},
				}}},
			},
		}},
		"consent-wrong": {Data: page.Consent{Client: "Growth Chart", Person: alice, Contradictory: true}},
		"consent-id":    {Data: page.Consent{Client: "Growth Chart", Person: alice, Patient: page.ConsentPatient{ID: "p02"}}},
		"continue":      {Data: page.Consent{Client: "Growth Chart", RedirectHost: "localhost:3000", SelfRegistered: true, Patient: page.ConsentPatient{Name: "Ada Lovelace"}}},
		"signout":       {Data: page.SignOut{Client: "Growth Chart"}}, "formpost": {Script: "submit", Data: page.FormPost{Client: "Growth Chart"}},
		"formpost-asks":        {Data: page.FormPost{Client: "Growth Chart", Question: page.T("Try again, or contact your organization’s IT help desk.")}},
		"selectpatient":        {Script: "search", Data: page.SelectPatient{Client: "Growth Chart", Searchable: true, HasMore: true, Recent: []page.Patient{jane}, Patients: []page.Patient{john, jane, {ID: "3"}}}},
		"confirmpatient":       {Data: page.ConfirmPatient{Client: "Growth Chart", Patient: john}},
		"confirmpatient-id":    {Data: page.ConfirmPatient{Client: "Growth Chart", Patient: page.Patient{ID: "3"}}},
		"selectpatient-down":   {Data: page.SelectPatient{Client: "Growth Chart", Problem: page.ChoiceProblem{ServerDown: true}}},
		"selectpatient-denied": {Data: page.SelectPatient{Client: "Growth Chart", Problem: page.ChoiceProblem{NotPermitted: true}}},
		"selectpatient-none":   {Data: page.SelectPatient{Client: "Growth Chart", Searchable: true, Name: "Smit"}},
		"selectencounter-down": {Data: page.SelectEncounter{Client: "Growth Chart", Problem: page.ChoiceProblem{ServerDown: true}}},
		"selectencounter": {Data: page.SelectEncounter{Client: "Growth Chart", Patient: "John Smith", HasMore: true, Problem: page.ChoiceProblem{NotPermitted: true},
			Encounters: []page.Encounter{{"1", "Check-up", "2026-05-01", "General Hospital"}, {ID: "2"}}}},
	}
}

// Every page can be rendered in every language, with all of its optional content.
func TestEveryPageInEveryLanguage(t *testing.T) {
	t.Parallel()
	all := samples()
	maps.Copy(all, accountSamples())
	maps.Copy(all, messageSamples())
	for name, view := range all {
		if template, _, _ := strings.Cut(name, "-"); slices.Contains(signedInTemplates, template) {
			view.SignedIn = &page.SignedIn{page.Person{"Alice Adams", "alice@example.org"}, "General Hospital", "sealed"}
			all[name] = view
		}
	}
	samples := pagetest.Samples{Title: "Authorization server", Files: os.DirFS("."), Code: "..", List: "../../../docs/evidence/pages.md", Views: all}
	samples.Check(t)
}

// signedInTemplates are the templates of pages for signed-in people.
var signedInTemplates = []string{
	"account", "appsetup", "confirmpatient", "consent", "continue", "passkeysetup", "passwordchange", "recoverycodes", "selectaccount", "selectencounter", "selectpatient", "signout",
}

// messageSamples returns views of all messages, by name.
func messageSamples() map[string]page.View {
	again, back := &page.Link{"/oauth2/login?restart=x", page.T("Sign in to %s again", "Growth Chart")}, &page.Link{"/oauth2/login?restart=x&decision=deny", page.T("Back to %s", "Growth Chart")}
	account, wrong := &page.Link{"/oauth2/account", page.T("Back to your account")}, page.T("Something went wrong")
	samples := map[string]page.View{
		"message-signed-out":      {Data: page.Message{Title: page.T("You’re signed out"), Text: page.T("You can close this page."), Next: &page.Link{"/", page.T("Go to %s", "General Hospital")}}},
		"message-logout-rejected": {Data: page.Message{Title: page.T("This link doesn’t work"), Text: invalidRequest, Detail: "The post_logout_redirect_uri does not match.", Next: &page.Link{"/oauth2/logout", page.T("Sign out here")}}},
		"message-invalid-request": {Data: page.Message{Title: page.T("This link doesn’t work"), Text: invalidRequest, Detail: "The client_id is not registered.", Next: &page.Link{"/oauth2/account", page.T("Open your account")}}},
		"message-no-cookies":      {Data: page.Message{Title: page.T("Start again"), Text: page.T("Your browser sent no cookies. Allow cookies for this site, or use the browser in which you opened the app."), Next: again, Back: back}},
		"message-outage":          {Data: page.Message{Title: wrong, Text: page.T("This site has a temporary problem. Try again in a minute."), Next: &page.Link{"/oauth2/login", page.T("Try again")}}},
		"message-sign-in-failed":  {Data: page.Message{Title: page.T("Sign-in failed"), Text: page.T("Try again, or contact your organization’s IT help desk."), Next: &page.Link{"/oauth2/login?restart=x", page.T("Start again")}}},
		"message-new-password":    {Data: page.Message{Title: page.T("Password changed"), Text: page.T("You’re signed out everywhere. Sign in with your new password."), Next: &page.Link{"/oauth2/login", page.T("Sign in")}}},
		"message-not-found":       {Data: page.Message{Title: page.T("Page not found"), Text: page.T("Check the address, or go back to the app and start again."), Next: &page.Link{"/oauth2/account", page.T("Your account")}}},
		"message-no-factor":       {Data: signin.SecondFactorMessage(), SignedIn: &page.SignedIn{page.Person{"alice", ""}, "", "sealed"}},
		"message-self-registered": {Data: page.Message{
			Title: page.T("Continue to %s?", "Growth Chart"), Next: &page.Link{"https://chart.example", page.T("Continue")},
			Text: page.T("You can’t sign in to %s right now. This app registered itself and hasn’t been verified. Continue only if you trust %s.", "Growth Chart", "https://chart.example"),
		}},
	}
	for name, text := range map[string]string{
		"page-expired": "This sign-in page has expired or was opened in another browser. Go back to the app and sign in again.", "callback-used": "You already completed this sign-in. Go back to the app.",
		"sign-in-expired":      "This sign-in has expired, was started in another browser, or is already complete. Go back to the app and sign in again.",
		"signed-out-meanwhile": "You’re signed out. Sign in to continue.", "other-session": "This page is from an earlier session. Check who is signed in, then start again.",
		"no-decision": "The form was sent without a decision. Use one of the buttons on the page.",
	} {
		samples["message-"+name] = page.View{Data: page.Message{Title: page.T("Start again"), Text: page.ErrorText(oauth2.NewRestartError(text)), Next: again, Back: back}}
	}
	other := samples["message-other-session"]
	other.SignedIn = &page.SignedIn{page.Person{"bob", ""}, "", "sealed"}
	samples["message-other-session"] = other
	for name, text := range map[string]string{
		"expired": "This page has expired or was opened in another browser. Open your account again.", "factor-at-provider": "Manage your second factor where you sign in.",
		"password-elsewhere": "Your password can’t be changed here. Change it where you sign in, or contact the administrator of this site.",
		"no-action":          "The form was sent without a known action. Use one of the buttons on the page.", "no-passkeys": "Passkeys aren’t available on this site.",
	} {
		samples["message-account-"+name] = page.View{Data: page.Message{Title: page.T("Start again"), Text: page.ErrorText(oauth2.NewRestartError(text)), Next: account}, SignedIn: &page.SignedIn{page.Person{"alice", ""}, "", "sealed"}}
	}
	for name, text := range map[string]*page.Text{
		"already-set-up": page.T("You already set this up, maybe in another tab."), "removed": page.T("This item was already removed."),
		"configured-app": page.T("To change or remove your authenticator app, contact the administrator of this site."), "too-many-passkeys": page.T("You have the maximum number of passkeys. Remove one to add another."),
	} {
		samples["message-account-"+name] = page.View{Data: page.Message{Title: page.T("No changes were made"), Text: text, Next: account}, SignedIn: &page.SignedIn{page.Person{"alice", ""}, "", "sealed"}}
	}
	return samples
}

var invalidRequest = page.T("The app sent an invalid request. Go back to the app and try again. If you see this page again, send these details to the app’s developer:")

// accountSamples returns views of the account pages, by name.
func accountSamples() map[string]page.View {
	ago := page.Plural("%d day ago", "%d days ago", 3)
	challenge := &page.Passkey{Options: `{"challenge":"AAAA"}`, Sealed: "sealed"}
	return map[string]page.View{
		"account-new": {Data: page.Account{Factors: page.AccountFactors{ManagedHere: true, SupportsPasskeys: true}}},
		"account": {Data: page.Account{
			Confirmation: page.T("The app no longer has access."),
			Apps: []page.AccountApp{{"growth-chart", "Growth Chart", ago, ago, page.T("Access continues after you sign out."), []*page.Text{page.T("Your email address")}, []page.AccountPatientAccess{
				{page.T("Your health records"), ago, "2027-03-01"}, {page.T("Health records of %s", "Ada Lovelace"), ago, ""}, {page.T("Health records of the patient with ID %s", "p02"), ago, ""},
			}}, {"other", "Other", ago, nil, page.T("Access ends when you sign out."), nil, nil}},
			Sessions: []page.AccountSession{
				{"a", page.T("%s on %s", "Firefox", "Windows"), ago, "", "192.0.2.1", true}, {"b", page.T("Unknown browser"), ago, "General Hospital", "", false},
			},
			Factors: page.AccountFactors{
				ManagedHere: true, App: ago, RecoveryCodes: 1, HasAny: true, SupportsPasskeys: true,
				Passkeys: []page.AccountPasskey{{"a", "Telephone", ago, ago}, {"b", "Key", ago, nil}},
			},
		}},
		"account-configured":   {Data: page.Account{Factors: page.AccountFactors{ManagedHere: true, AppConfigured: true, HasAny: true}}},
		"account-provider":     {Data: page.Account{Factors: page.AccountFactors{Provider: "General Hospital"}}},
		"account-elsewhere":    {Data: page.Account{}},
		"appsetup":             {Policy: page.Policy{Images: "data:"}, Data: page.AppSetup{QR: "data:,", Secret: "ABCD EFGH"}},
		"appsetup-wrong":       {Data: page.AppSetup{Secret: "ABCD EFGH", WrongCode: true}},
		"appsetup-wait":        {Data: page.AppSetup{Secret: "ABCD EFGH", Wait: time.Minute}},
		"passwordchange":       {Data: page.PasswordChange{UserName: "alice", MinLength: 12, MaxLength: 128, Problem: page.T("Your current password is incorrect."), WrongCurrent: true}},
		"passkeysetup":         {Script: "passkey", Data: page.PasskeySetup{Name: "Firefox", Passkey: challenge, Rejected: true}},
		"recoverycodes":        {Data: page.RecoveryCodes{Codes: []string{"abcd-efgh-jkmn-pqrs"}, Confirmation: page.T("Your passkey is set up.")}},
		"signin-account":       {Script: "passkey", Data: page.SignIn{OffersPassword: true, Passkey: challenge, Problem: page.SignInProblem{Passkey: true}}},
		"secondfactor-passkey": {Script: "passkey", Data: page.SecondFactor{Passkey: challenge, WrongPasskey: true}},
		"secondfactor-all":     {Script: "passkey", Data: page.SecondFactor{AcceptsCode: true, HasApp: true, HasRecoveryCodes: true, Passkey: challenge}},
	}
}
