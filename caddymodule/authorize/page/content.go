package page

import (
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
)

// SignIn is the data of templates/signin.html.
type SignIn struct {
	Client         string         // display name of the client
	Links          AppLinks       // links that the client registered
	Request        string         // sealed authorization request
	Username       string         // user name typed last, or login_hint
	Problem        SignInProblem  // problem with the previous attempt
	OffersPassword bool           // whether users can sign in with a password
	ForgotPassword string         // URL for people who forgot their password; "" if none
	Passkey        *Passkey       // passkey challenge; nil if no passkey can be used
	AcceptsEmail   bool           // whether entering an e-mail address may redirect to an identity provider
	Providers      []ProviderLink // links to identity providers
}

// SignInProblem describes why the sign-in page is shown again. The zero value means no problem.
type SignInProblem struct {
	Failed       bool          // whether the user name or password was wrong
	Wait         time.Duration // time until the next attempt is permitted; 0 if not throttled
	ProviderDown string        // name of the identity provider that cannot sign people in; "" if none
	TryAgain     string        // URL that retries ProviderDown if it is the only way to sign in; otherwise ""
	BusyWait     time.Duration // time to wait, because there were too many concurrent attempts; 0 if not

	Passkey bool // whether the passkey was rejected

	OtherPerson bool // whether the request is for someone other than the signed-in person
}

// Passkey is a challenge for the script "passkey". Without scripts, pages do not show it.
type Passkey struct {
	Options string // JSON options for navigator.credentials
	Sealed  string // sealed challenge, submitted with the response
}

// Any reports whether any field is set.
func (p SignInProblem) Any() bool { return p != SignInProblem{} }

// ProviderLink is a link to an identity provider.
type ProviderLink struct {
	Name    string // display name of the provider
	Address string // URL of the link
	Icon    string // URL of the provider's icon; "" if none
}

// SecondFactor is the data of templates/secondfactor.html.
type SecondFactor struct {
	Client    string        // display name of the client
	Person    Person        // person who passed the first factor; zero if SignedIn shows the person
	Pending   string        // sealed pending sign-in
	WrongCode bool          // whether the last code was wrong
	Wait      time.Duration // time until the next attempt is permitted; 0 if not throttled

	AcceptsCode              bool     // whether codes are accepted
	HasApp, HasRecoveryCodes bool     // kinds of codes that the user has
	Passkey                  *Passkey // passkey challenge; nil if the user has no passkey
	WrongPasskey             bool     // whether the passkey was rejected
}

// SelectAccount is the data of templates/selectaccount.html.
type SelectAccount struct {
	Client  string // display name of the client; "" for a page of the gateway
	Request string // sealed authorization request; "" with SignIn
	SignIn  string // sealed sign-in that the person must confirm; "" with Request
	Person  Person // person to continue as; empty if the request does not permit them
}

// Person identifies a person on pages.
type Person struct {
	Name   string // best available name of the person
	Detail string // distinguishes people with the same name; may be ""
}

// SignedIn is the signed-in person at the top of a page.
type SignedIn struct {
	Person   Person // person of the session
	Provider string // display name of the identity provider; "" for a local user
	Switch   string // sealed value of the button "Not you?"
}

// SignInRejected is the data of templates/refused.html.
type SignInRejected struct {
	Client         string // display name of the client; "" for a page of the gateway
	SealedSignIn   string // sealed data of the rejected sign-in
	Person         Person // person with the rejected sign-in
	Provider       string // display name of the person's identity provider
	SupportsLogout bool   // whether the identity provider supports logout
}

// SignOut is the data of templates/signout.html.
type SignOut struct {
	Client  string // display name of the client; "" if none requested the logout
	Request string // sealed logout request
}

// FormPost is the data of templates/formpost.html. The script "submit" submits the form; without scripts, it shows a button.
type FormPost struct {
	Client   string  // display name of the client
	Address  string  // URL to which the form is submitted
	Fields   []Field // hidden fields of the form
	Question *Text   // question that the person answers by pressing the button; if nil, the script submits the form
}

// Field is a hidden field of a form.
type Field struct {
	Name  string // parameter name
	Value string // parameter value
}

// Message is the data of templates/message.html.
type Message struct {
	Title  *Text  // heading
	Text   *Text  // what happened, and what the person can do
	Detail string // English text for the client's developer
	Next   *Link  // link to continue with
	Back   *Link  // link that returns to the app; may be nil
}

// Link is a link to another page.
type Link struct {
	Address string // URL
	Text    *Text  // link text
}

// ShowMessage shows a page with a message.
func (s *Site) ShowMessage(w http.ResponseWriter, r *http.Request, status int, message Message) {
	s.Show(w, r, View{Template: "message", Status: status, Data: message})
}

// AppLinks are the unverified links of a self-registered app (RFC 7591 §2). Browsers load no resources from the app: the
// gateway serves its logo.
type AppLinks struct {
	Client string // display name of the client
	Logo   string // URL of the logo at the gateway; "" if none
	Policy string // URL of the privacy policy; "" if none
	Terms  string // URL of the terms of service; "" if none
}

// LogoOf returns the URL at which the gateway serves a client's logo.
func LogoOf(clientID string) string {
	return endpoint.ClientLogo + "?client_id=" + url.QueryEscape(clientID)
}

// Images returns the image sources that these links require in a [Policy].
func (a AppLinks) Images() string {
	if a.Logo == "" {
		return ""
	}
	return "'self'"
}

// Account is the data of templates/account.html, the account page.
type Account struct {
	Request      string           // sealed session, which binds the forms to it
	Confirmation *Text            // confirmation of the last action; nil if there is none
	Apps         []AccountApp     // apps that have access
	Sessions     []AccountSession // sessions of the user
	Factors      AccountFactors   // second factors of the user

	MayChangePassword bool // whether the user can change their password here
}

// AccountApp is an app that has access to the user's data.
type AccountApp struct {
	ID        string  // client_id
	Name      string  // display name of the client
	Since     *Text   // when access started
	LastUsed  *Text   // time of the last use; nil if unknown
	AccessEnd *Text   // when access ends
	Scope     []*Text // permissions of the app

	Patients []AccountPatientAccess // patients with records that the app can access
}

// AccountPatientAccess describes an app's access to one patient's records.
type AccountPatientAccess struct {
	Owner *Text  // description of the patient
	Since *Text  // when access started
	Until string // expiry date; "" if access ends with the session
}

// AccountSession is a session of the user.
type AccountSession struct {
	ID        string // sid
	Device    *Text  // browser and operating system
	Since     *Text  // when the user signed in
	Provider  string // display name of the identity provider; "" for a password sign-in
	Network   string // network of the IP address; "" for loopback
	IsCurrent bool   // whether the page was requested in this session
}

// AccountFactors are a user's second factors.
type AccountFactors struct {
	ManagedHere      bool             // whether the gateway manages the user's factors
	Provider         string           // name of the identity provider that manages the user's factors; "" if unknown
	AppConfigured    bool             // whether an authenticator app is set in the configuration; the user cannot remove it
	App              *Text            // when an authenticator app was enrolled; nil if none is
	RecoveryCodes    int              // number of unused recovery codes
	HasAny           bool             // whether any factor is enrolled
	SupportsPasskeys bool             // whether this site supports passkeys
	Passkeys         []AccountPasskey // passkeys, oldest first
}

// AccountPasskey is an enrolled passkey of the user.
type AccountPasskey struct {
	ID       string // credential id
	Name     string // name chosen by the user
	Enrolled *Text  // when the passkey was enrolled
	LastUsed *Text  // time of the last use; nil if never used
}

// PasswordChange is the data of templates/passwordchange.html for changing the user's own password.
type PasswordChange struct {
	Request      string        // sealed session, which binds the form to it
	UserName     string        // user name, for password managers
	MinLength    int           // minimum length of the new password in characters
	MaxLength    int           // maximum length of the new password in characters
	Problem      *Text         // why the change was rejected; nil if it was not
	WrongCurrent bool          // whether Problem is about the current password
	Wait         time.Duration // time until the next attempt is permitted; 0 if not throttled
}

// AppSetup is the data of templates/appsetup.html for enrolling an authenticator app.
type AppSetup struct {
	Request   string        // sealed session, which binds the form to it
	SealedKey string        // sealed key of the app
	QR        template.URL  // data URL of the QR code with the key
	Secret    string        // key in base32, in groups of four characters
	WrongCode bool          // whether the last code was wrong
	Wait      time.Duration // time until the next attempt is permitted; 0 if not throttled
}

// PasskeySetup is the data of templates/passkeysetup.html for enrolling a passkey.
type PasskeySetup struct {
	Request  string   // sealed session, which binds the form to it
	Name     string   // suggested name of the passkey
	Passkey  *Passkey // enrollment challenge
	Rejected bool     // whether the last response was rejected
}

// RecoveryCodes is the data of templates/recoverycodes.html. The codes cannot be shown again.
type RecoveryCodes struct {
	Codes        []string // recovery codes, in order of creation
	Confirmation *Text    // confirmation of the action
}

// Consent is the data of templates/consent.html.
type Consent struct {
	Client         string         // display name of the client
	Links          AppLinks       // links that the client registered
	Request        string         // sealed authorization request
	RedirectHost   string         // host of the redirect URI
	Person         Person         // person who is asked for consent
	SelfRegistered bool           // whether the client registered itself
	Patient        ConsentPatient // patient in the launch context
	RequiredItems  []*Text        // items that the person cannot untick
	Groups         []ConsentGroup // items that the person can untick
	Contradictory  bool           // whether an item in the submitted form was ticked, but nothing below it
}

// ConsentPatient is the patient in the launch context. It is zero if there is no patient, or if the record is the user's own.
type ConsentPatient struct {
	ID         string // resource id
	Name       string // name of the patient; "" if unknown
	BirthDate  string // FHIR date; may be ""
	Identifier string // identifier, e.g. a medical record number; may be ""
}

// ConsentGroup is a group of checkboxes.
type ConsentGroup struct {
	Legend *Text         // heading
	Items  []ConsentItem // items in display order
}

// ConsentItem is a checkbox for an item or a part of it, with checkboxes for its parts.
type ConsentItem struct {
	Name         string        // name of the form field
	Text         *Text         // description of the permission
	Detail       *Text         // what the permission allows; may be nil
	Ticked       bool          // whether the checkbox is initially ticked
	PartlyTicked bool          // whether the checkbox is ticked, but some part is not
	Permissions  []ConsentItem // checkboxes for read and write access
	Parts        []ConsentItem // checkboxes for kinds of data
	Times        []ConsentTime // selectable lifetimes of the access
}

// ConsentTime is a lifetime that the person can select.
type ConsentTime struct {
	Value  string // value of the form field
	Text   *Text  // label, e.g. "30 days"
	Ticked bool   // whether the lifetime is initially selected
}

// SelectPatient is the data of templates/selectpatient.html.
type SelectPatient struct {
	Client     string        // display name of the client
	Request    string        // sealed authorization request
	Problem    ChoiceProblem // problem with the choice or the list
	Searchable bool          // whether patients can be searched by Name, BirthDate and Identifier
	Name       string        // name searched for
	BirthDate  string        // date of birth searched for
	Identifier string        // identifier searched for
	Recent     []Patient     // patients whom the person chose last
	Patients   []Patient     // patients to choose from
	HasMore    bool          // whether more patients match
}

// Patient is a patient that can be chosen. All fields except ID may be "" or nil.
type Patient struct {
	ID         string // resource id
	Name       string // full name
	BirthDate  string // date of birth as a FHIR date
	Identifier string // identifier, e.g. a medical record number
	Address    string // address on one line
	Gender     *Text  // administrative gender
	Age        *Text  // age, or that the patient has died
}

// ConfirmPatient is the data of templates/confirmpatient.html.
type ConfirmPatient struct {
	Client  string  // display name of the client
	Request string  // sealed authorization request
	Patient Patient // patient whom the person chose
}

// SelectEncounter is the data of templates/selectencounter.html.
type SelectEncounter struct {
	Client     string        // display name of the client
	Request    string        // sealed authorization request
	Problem    ChoiceProblem // problem with the choice or the list
	Patient    string        // patient's name; may be ""
	Encounters []Encounter   // encounters to choose from, latest first
	HasMore    bool          // whether there are earlier encounters
}

// Encounter is an encounter that can be chosen. All fields except ID may be "".
type Encounter struct {
	ID    string // resource id
	Kind  string // type or class in words
	Start string // start as a FHIR date or dateTime
	Place string // name of the organization
}

// ChoiceProblem describes why a selection page is shown again. The zero value means no problem.
type ChoiceProblem struct {
	NotPermitted bool // whether the person may not choose what was submitted
	ServerDown   bool // whether the FHIR server could not be reached
}

// Gender returns the label of a FHIR AdministrativeGender code, or nil for an unknown code.
func Gender(code string) *Text {
	switch code {
	case "female":
		return T("female")
	case "male":
		return T("male")
	case "other":
		return T("other")
	}
	return nil
}

// Age returns the age of someone who was born on a FHIR date: in years, below two years in months, and below one month in days.
// It returns nil for an incomplete date.
func Age(birthDate string, now time.Time) *Text {
	born, err := time.Parse(time.DateOnly, birthDate)
	if err != nil || born.After(now) {
		return nil
	}
	months := 12*(now.Year()-born.Year()) + int(now.Month()-born.Month())
	if now.Day() < born.Day() {
		months--
	}
	switch {
	case months >= 24:
		return Plural("%d year", "%d years", months/12)
	case months >= 1:
		return Plural("%d month", "%d months", months)
	}
	return Plural("%d day", "%d days", int(now.Sub(born)/(24*time.Hour)))
}
