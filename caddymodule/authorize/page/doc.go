// Package page is what people see: the look, the words and the languages of all pages, and
// the policy by which browsers show them. It does not know what the pages are for: flow and
// others hand it data.
//
//	site.go        Site, and View: one page as it is to be shown; the Content-Security-Policy; the style for launched apps
//	content.go     what each template shows, and ShowMessage for what needs no form
//	translation.go texts made in Go: T, Plural, And, Problem; the languages; a text or a date in one of them
//	branding.go    a site's name, logo and color
//	templates.go   the templates: their files, AddFiles for those of features, and how they are parsed in each language
//
// # A new page
//
// Its template is templates/<name>.html, which defines "title" and "body", each shown with
// [View.Data], whose type is in content.go. Where "You are signing in at" does not suit, it
// defines "footer" too, which is shown with the fields of the site, the view's in Data.
//
//	{{define "title"}}{{t "Choose a patient"}}{{end}}
//	{{define "body"}}<h1>{{t "Choose a patient"}}</h1>
//	<p>{{t "to continue to %s" (strong .Client)}}</p>{{end}}
//
// Every text in a template is an argument of t: an English text and what its verbs stand for,
// which can be a string, a number, a [Text], a [time.Duration] (shown as a wait: "30 seconds")
// or what strong or date returns. What is counted is {{n "%d app" "%d apps" .Count}}. A text that was
// made in Go ([T], [Plural], [And]) is {{t .Text}}; sentence begins it with a capital letter.
// The argument of T is always a literal: that is how the texts are found. A test fails for
// one that texts.json does not have in every language, for each that it has and nobody uses, and
// where the verbs differ; %[2]s names an argument that comes in another order. A text for a number
// has its forms in a list, such as ["%d App", "%d Apps"]. People are addressed formally: Sie,
// vous, usted, u.
//
// The page is then shown:
//
//	site.Show(w, r, page.View{
//		Template: "selectpatient", Data: page.SelectPatient{…}, Locales: uiLocales,
//		Policy: page.Policy{FormAction: page.FormAction(redirectURI)},
//	})
//
// A page that belongs to an authorization request ends with a link by which people return to the
// app without having done what the page asks for: the path gets decision=deny, and answers with
// access_denied. It is no part of the form, which holds only what tools that fill it in look for.
//
// A script is scripts/<name>.js, put at the end of the page and allowed by its hash if
// [View.Script] names it. Pages must work without.
//
// A page of a feature is made likewise. Its files are in the feature's folder ([AddFiles]), and the type of its data too.
// Package pagetest has the tests.
package page
