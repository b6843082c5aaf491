// A person with a browser, for clients that run in Node: cookies, redirects one
// by one, and the sign-in page's form.
export const issuer = process.env.ISSUER;
export const redirectURI = 'http://localhost:3000/callback';

// signIn opens an authorization URL and signs in. It returns where that ends:
// at the redirect URI, which is not opened.
export async function signIn(authorizationURL, browser = new Browser()) {
	return landed(await browser.signIn(authorizationURL));
}

// landed is where an answer sends the browser.
export function landed(answer) {
	return new URL(answer.headers.get('location'));
}

// post sends the form of a page, as the app at the form's address gets it.
export async function post(page) {
	const [action, fields] = form(await page.text());
	return new Request(action, { method: 'POST', body: fields });
}

// form is a page's form: where it goes, and what it holds.
function form(html) {
	const action = /<form [^>]*action="([^"]*)"/.exec(html)?.[1];
	if (!action) {
		throw new Error(`no form: ${html}`);
	}
	const fields = new URLSearchParams();
	for (const [, name, value] of html.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)"/g)) {
		fields.set(name, unescape(value));
	}
	return [unescape(action), fields];
}

// unescape reads what Go's html/template escapes in attributes.
function unescape(text) {
	return text.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code)).replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&amp;', '&');
}

export class Browser {
	#cookies = new Map();

	async fetch(url, options) {
		const cookie = [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
		const response = await fetch(url, { ...options, redirect: 'manual', headers: { cookie } });
		for (const line of response.headers.getSetCookie()) {
			const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
			this.#cookies.set(name, value);
		}
		return response;
	}

	async open(url) {
		for (let redirects = 0; redirects < 5; redirects++) {
			const response = await this.fetch(url);
			if (response.status !== 302) {
				return response;
			}
			url = new URL(response.headers.get('location'), url);
		}
		throw new Error('too many redirects');
	}

	// signIn returns the answer to the sign-in page.
	async signIn(authorizationURL) {
		const page = await this.open(authorizationURL);
		const [action, fields] = form(await page.text());
		fields.set('username', 'alice');
		fields.set('password', 'alice-demo-password');
		return this.fetch(new URL(action, page.url), { method: 'POST', body: fields });
	}

	// consent allows all that a consent page asks for, but for some.
	async consent(answer, ...without) {
		const page = await this.open(new URL(answer.headers.get('location'), issuer));
		const html = await page.text();
		const [action, fields] = form(html);
		fields.set('decision', 'allow');
		for (const [, name] of html.matchAll(/name="(may [^"]*)"/g)) {
			if (!without.includes(unescape(name).slice('may '.length))) {
				fields.set(unescape(name), 'on');
			}
		}
		return landed(await this.fetch(new URL(action, page.url), { method: 'POST', body: fields }));
	}
}

// expandGender is the address of a small expansion.
export const expandGender = new URL(
	`${issuer}/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender`,
);

// othersHear waits until a change at one of several gateways is known to all.
export const othersHear = () => new Promise((resolve) => setTimeout(resolve, process.env.REPLICAS ? 1000 : 0));
