// An OpenID provider by others (npm oidc-provider), for the gateway to sign
// people in with. It speaks plain HTTP on loopback.
//
//	PORT                        where it listens
//	GATEWAY                     the issuer of the gateway that is its client
//
// It has two people, and knows the gateway as two clients, `gateway-rs256` and
// `gateway-es256`, whose ID tokens are signed with these algorithms. Whatever it
// says of people beyond their sub is in userinfo alone.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';

import { Provider } from 'oidc-provider';

const { PORT, GATEWAY } = process.env;
const issuer = `http://127.0.0.1:${PORT}`;

const people = {
	ada: {
		password: 'ada-at-the-provider',
		claims: {
			name: 'Ada Abbott',
			nickname: 'Addie',
			preferred_username: 'ada.abbott',
			email: 'ada@hospital.example',
			email_verified: true,
			groups: ['clinicians', 'staff'],
			roles: ['clinicians'],
			fhir_reference: 'Practitioner/ada-by-claim',
		},
	},
	bob: {
		password: 'bob-at-the-provider',
		claims: {
			name: 'Bob Brown',
			email: 'bob@hospital.example',
			email_verified: true,
			groups: ['visitors'],
			roles: [],
		},
	},
};

// client is the gateway's entry, with the callback of one of its idp blocks.
function client(key, algorithm) {
	return {
		client_id: `gateway-${key}`,
		client_secret: `secret-of-gateway-${key}`,
		redirect_uris: [`${GATEWAY}/oauth2/callback/node-${key}`],
		post_logout_redirect_uris: [`${GATEWAY}/oauth2/logout/node-${key}`],
		id_token_signed_response_alg: algorithm,
	};
}

function signingKey(kid, alg, type, options) {
	return { ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }), kid, alg, use: 'sig' };
}

const provider = new Provider(issuer, {
	clients: [client('rs256', 'RS256'), client('es256', 'ES256')],
	jwks: {
		keys: [
			signingKey('rsa', 'RS256', 'rsa', { modulusLength: 2048 }),
			signingKey('ec', 'ES256', 'ec', { namedCurve: 'P-256' }),
		],
	},
	cookies: { keys: [randomBytes(32).toString('hex')] },
	pkce: { required: () => true },
	claims: {
		openid: ['sub'],
		profile: ['name', 'nickname', 'preferred_username'],
		email: ['email', 'email_verified'],
		groups: ['groups', 'roles', 'fhir_reference'],
	},
	findAccount: (ctx, id) => people[id] && { accountId: id, claims: () => ({ sub: id, ...people[id].claims }) },
	// What the gateway asks for is granted without a second page.
	async loadExistingGrant(ctx) {
		const { client, session, provider } = ctx.oidc;
		const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
		grant.addOIDCScope('openid profile email groups');
		await grant.save();
		return grant;
	},
	interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
	features: {
		devInteractions: { enabled: false },
		rpInitiatedLogout: {
			enabled: true,
			logoutSource(ctx, form) {
				ctx.type = 'html';
				ctx.body = page('Sign out of the provider?', `${form}<button form="op.logoutForm" name="logout" value="yes">Sign out</button>`);
			},
		},
	},
});

// The gateway is told of faults by their status; people here read the log.
provider.on('server_error', (ctx, error) => console.error(error));
for (const event of ['authorization.error', 'grant.error', 'userinfo.error', 'end_session.error']) {
	provider.on(event, (ctx, error) => console.error(event, error.message, error.error_detail ?? error.error_description));
}

const byProvider = provider.callback();

createServer((request, response) =>
	request.url.startsWith('/interaction/') ? interact(request, response) : byProvider(request, response),
).listen(Number(PORT), '127.0.0.1', () => console.log(`provider listens at ${issuer}`));

// interact is the sign-in page: GET shows it, POST takes what was typed.
async function interact(request, response) {
	const { params, prompt } = await provider.interactionDetails(request, response);
	if (request.method === 'POST') {
		const typed = await form(request);
		if (people[typed.get('login')]?.password === typed.get('pass')) {
			const result = { login: { accountId: typed.get('login') } };
			return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
		}
	}
	response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', 'Cache-Control': 'no-store' });
	response.end(
		page(
			'Sign in at the provider',
			`<form method="post" action="${request.url}">
<p>${prompt.name} for ${escape(params.client_id)}</p>
<label>Name <input name="login" value="${escape(params.login_hint ?? '')}" autofocus></label>
<label>Password <input name="pass" type="password"></label>
<button>Sign in</button>
</form>`,
		),
	);
}

async function form(request) {
	const chunks = [];
	for await (const chunk of request) {
		chunks.push(chunk);
	}
	return new URLSearchParams(Buffer.concat(chunks).toString());
}

function page(title, body) {
	return `<!doctype html><html lang="en"><meta charset="utf-8"><title>${title}</title><h1>${title}</h1>${body}`;
}

function escape(text) {
	return text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
}
