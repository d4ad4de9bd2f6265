//! Shapes of secrets: the token formats of well-known services, private keys, passwords in
//! addresses, and assignments to names that say they are secret.
//!
//! Each shape names a short text that has to occur for it to match at all. One search for these
//! texts is all an ordinary line costs. Hashes, UUIDs, commit ids and base64 data have none of the
//! prefixes and are left alone.

/// A form of secret.
pub(super) struct Shape {
    /// Stands in the placeholder.
    pub(super) name: &'static str,
    /// One of these has to occur.
    pub(super) hints: &'static [&'static str],
    /// The secret is group 1 where there is one, else the whole match.
    pub(super) pattern: &'static str,
    /// A last look at what matched.
    pub(super) check: fn(&str) -> bool,
}

const fn shape(
    name: &'static str,
    hints: &'static [&'static str],
    pattern: &'static str,
    check: fn(&str) -> bool,
) -> Shape {
    Shape {
        name,
        hints,
        pattern,
        check,
    }
}

/// Anything the pattern matches is a secret.
fn any(_: &str) -> bool {
    true
}

/// Secrets are drawn at random; names, words and plain numbers are not.
fn is_random(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
    digits >= 2 && letters >= 2 && !text.contains("redacted:")
}

/// Placeholders of examples and templates, which are not passwords.
fn is_password(text: &str) -> bool {
    let plain = text
        .trim_matches(|c: char| !c.is_ascii_alphanumeric())
        .to_ascii_lowercase();
    !text.starts_with(['$', '{', '<', '%', '[', '*'])
        && !matches!(
            plain.as_str(),
            "" | "password"
                | "passwd"
                | "pass"
                | "pwd"
                | "secret"
                | "token"
                | "xxx"
                | "xxxx"
                | "user"
        )
}

/// In the order in which they win when two match at the same place.
pub(super) const SHAPES: &[Shape] = &[
    shape(
        "private-key",
        &["PRIVATE KEY"],
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:(?:\s|\\[nrt])*(?:\d{1,6}(?:\s|\\t|\|)+)?[A-Za-z0-9+/=]{16,})*",
        any,
    ),
    shape(
        "anthropic-key",
        &["sk-ant-"],
        r"\bsk-ant-[A-Za-z0-9_-]{20,}",
        is_random,
    ),
    shape(
        "openrouter-key",
        &["sk-or-"],
        r"\bsk-or-(?:v1-)?[A-Za-z0-9]{32,}",
        is_random,
    ),
    shape(
        "openai-key",
        &["sk-"],
        r"\bsk-(?:proj-|svcacct-|admin-|None-)?[A-Za-z0-9_-]{20,}",
        is_random,
    ),
    shape("groq-key", &["gsk_"], r"\bgsk_[A-Za-z0-9]{40,}", is_random),
    shape("xai-key", &["xai-"], r"\bxai-[A-Za-z0-9]{40,}", is_random),
    shape(
        "perplexity-key",
        &["pplx-"],
        r"\bpplx-[A-Za-z0-9]{40,}",
        is_random,
    ),
    shape(
        "huggingface-token",
        &["hf_"],
        r"\bhf_[A-Za-z0-9]{30,}",
        is_random,
    ),
    shape(
        "replicate-token",
        &["r8_"],
        r"\br8_[A-Za-z0-9]{37,40}\b",
        is_random,
    ),
    shape(
        "github-token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
        r"\bgh[pousr]_[A-Za-z0-9]{36,}",
        any,
    ),
    shape(
        "github-token",
        &["github_pat_"],
        r"\bgithub_pat_[A-Za-z0-9_]{50,}",
        any,
    ),
    shape(
        "gitlab-token",
        &[
            "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-",
            "glsoat-",
        ],
        r"\bgl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat)-[A-Za-z0-9_-]{20,}",
        is_random,
    ),
    shape(
        "aws-key-id",
        &["AKIA", "ASIA", "ABIA", "ACCA"],
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
        any,
    ),
    shape(
        "aws-secret-key",
        &["ecret_access_key", "ECRET_ACCESS_KEY", "ecretAccessKey"],
        r#"(?i)secret_?access_?key[\\"'\s:=]{1,8}([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|$)"#,
        is_random,
    ),
    shape("google-key", &["AIza"], r"\bAIza[A-Za-z0-9_-]{35}", any),
    shape(
        "google-token",
        &["ya29."],
        r"\bya29\.[A-Za-z0-9_-]{30,}",
        any,
    ),
    shape(
        "google-secret",
        &["GOCSPX-"],
        r"\bGOCSPX-[A-Za-z0-9_-]{28}",
        any,
    ),
    shape(
        "slack-token",
        &[
            "xoxb-", "xoxa-", "xoxp-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xapp-",
        ],
        r"\b(?:xox[abeprs][-.]|xapp-)[A-Za-z0-9.-]{20,}",
        is_random,
    ),
    shape(
        "slack-webhook",
        &["hooks.slack.com/"],
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{20,})",
        any,
    ),
    shape(
        "stripe-key",
        &["k_live_", "k_test_"],
        r"\b[srp]k_(?:live|test)_[A-Za-z0-9]{16,}",
        any,
    ),
    shape(
        "stripe-webhook-secret",
        &["whsec_"],
        r"\bwhsec_[A-Za-z0-9+/=]{24,}",
        any,
    ),
    shape(
        "npm-token",
        &["npm_"],
        r"\bnpm_[A-Za-z0-9]{36}\b",
        is_random,
    ),
    shape("pypi-token", &["pypi-"], r"\bpypi-[A-Za-z0-9_-]{60,}", any),
    shape(
        "docker-token",
        &["dckr_"],
        r"\bdckr_[a-z]{3,4}_[A-Za-z0-9_-]{20,}",
        any,
    ),
    shape(
        "sendgrid-key",
        &["SG."],
        r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}",
        is_random,
    ),
    shape("mailgun-key", &["key-"], r"\bkey-[0-9a-f]{32}\b", any),
    shape(
        "digitalocean-token",
        &["_v1_"],
        r"\bdo[opr]_v1_[0-9a-f]{64}\b",
        any,
    ),
    shape(
        "linear-key",
        &["lin_api_", "lin_oauth_"],
        r"\blin_(?:api|oauth)_[A-Za-z0-9]{32,}",
        any,
    ),
    shape(
        "notion-token",
        &["ntn_", "secret_"],
        r"\b(?:ntn|secret)_[A-Za-z0-9]{43,50}\b",
        is_random,
    ),
    shape(
        "shopify-token",
        &["shpat_", "shpca_", "shppa_", "shpss_"],
        r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}\b",
        any,
    ),
    shape(
        "databricks-token",
        &["dapi"],
        r"\bdapi[0-9a-f]{32}(?:-\d)?\b",
        any,
    ),
    shape(
        "azure-key",
        &["AccountKey=", "SharedAccessKey="],
        r"\b(?:Account|SharedAccess)Key=([A-Za-z0-9+/]{40,}={0,2})",
        any,
    ),
    shape(
        "telegram-token",
        &[":AA"],
        r"\b\d{8,10}:AA[A-Za-z0-9_-]{32,33}\b",
        any,
    ),
    shape(
        "vault-token",
        &["hvs.", "hvb."],
        r"\bhv[sb]\.[A-Za-z0-9_-]{24,}",
        is_random,
    ),
    shape(
        "terraform-token",
        &[".atlasv1."],
        r"\b[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,}",
        any,
    ),
    shape(
        "doppler-token",
        &["dp.pt.", "dp.st.", "dp.ct."],
        r"\bdp\.[psc]t\.[A-Za-z0-9._-]{40,}",
        any,
    ),
    shape(
        "postman-key",
        &["PMAK-"],
        r"\bPMAK-[0-9a-f]{24}-[0-9a-f]{34}",
        any,
    ),
    shape("newrelic-key", &["NRAK-"], r"\bNRAK-[A-Z0-9]{27}", any),
    shape(
        "grafana-token",
        &["glsa_", "glc_"],
        r"\bgl(?:sa|c)_[A-Za-z0-9+/=_]{32,}",
        is_random,
    ),
    shape("figma-token", &["figd_"], r"\bfigd_[A-Za-z0-9_-]{40,}", any),
    shape("supabase-token", &["sbp_"], r"\bsbp_[0-9a-f]{40}\b", any),
    shape(
        "sentry-token",
        &["sntrys_", "sntryu_"],
        r"\bsntry[su]_[A-Za-z0-9+/=_]{40,}",
        any,
    ),
    shape(
        "tailscale-key",
        &["tskey-"],
        r"\btskey-[a-z]{3,12}-[A-Za-z0-9]{8,}-[A-Za-z0-9]{20,}",
        any,
    ),
    shape(
        "planetscale-token",
        &["pscale_"],
        r"\bpscale_(?:tkn|pw|oauth)_[A-Za-z0-9._-]{32,}",
        any,
    ),
    shape(
        "fly-token",
        &["FlyV1 ", "fm1_", "fm2_"],
        r"\b(?:FlyV1 )?fm[12][ar]?_[A-Za-z0-9+/=]{60,}",
        any,
    ),
    shape(
        "age-key",
        &["AGE-SECRET-KEY-1"],
        r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}",
        any,
    ),
    shape(
        "jwt",
        &["eyJ"],
        r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
        any,
    ),
    shape(
        "url-password",
        &["://"],
        r#"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@"'<>\\]*:([^\s:/@"'<>\\]{3,})@[A-Za-z0-9\[]"#,
        is_password,
    ),
    shape(
        "authorization",
        &["uthorization", "UTHORIZATION"],
        r#"(?i)authorization[\\"']{0,3}\s*[:=]\s*[\\"']{0,3}(?:bearer|basic|token)\s+([A-Za-z0-9._~+/-]{16,}={0,2})"#,
        is_random,
    ),
    shape(
        "bearer-token",
        &["earer "],
        r"\b[Bb]earer ([A-Za-z0-9._~+/-]{24,}={0,2})",
        is_random,
    ),
    shape(
        "assigned-secret",
        &[
            "SECRET",
            "TOKEN",
            "PASSW",
            "API_KEY",
            "APIKEY",
            "ACCESS_KEY",
            "PRIVATE_KEY",
        ],
        r#"\b[A-Z0-9_]*(?:SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY)(?:_[A-Z0-9_]+)?\s?=\s?[\\"']{0,2}([A-Za-z0-9+/_.~!@#%^&*:=-]{8,})"#,
        is_random,
    ),
];

/// True if a variable of this name and value holds a secret. What it names (a file, a socket, a
/// program) is not one.
pub(super) fn is_secret_variable(name: &str, value: &str) -> bool {
    const SECRET_WORDS: &[&str] = &[
        "KEY",
        "APIKEY",
        "SECRET",
        "TOKEN",
        "PASSWORD",
        "PASSWD",
        "PASS",
        "PWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "AUTH",
        "COOKIE",
        "PAT",
        "JWT",
        "DSN",
        "SIGNATURE",
        "PRIVATE",
    ];
    const NOT_A_VALUE: &[&str] = &[
        "FILE", "PATH", "DIR", "SOCK", "SOCKET", "NAME", "ID", "URL", "URI", "HOST", "PORT",
        "TYPE", "COUNT", "LIMIT", "TTL", "EXPIRY", "AGENT", "HELPER", "COMMAND", "CMD", "MAX",
        "ENABLED",
    ];
    let upper = name.to_ascii_uppercase();
    let words: Vec<&str> = upper.split(['_', '-', '.']).collect();
    let named = words.iter().any(|word| {
        SECRET_WORDS.contains(word)
            || word.ends_with("KEY")
                && word.len() > 3
                && !matches!(*word, "HOTKEY" | "MONKEY" | "TURKEY")
            || word.ends_with("TOKEN")
            || word.ends_with("PASSWORD")
            || word.ends_with("SECRET")
    });
    let points_elsewhere = words.last().is_some_and(|word| NOT_A_VALUE.contains(word));
    // PWD is where the shell stands; a short value would be found everywhere.
    named
        && !points_elsewhere
        && !matches!(upper.as_str(), "PWD" | "OLDPWD" | "PATH")
        && value.len() >= 8
        && value.len() <= 16 * 1024
        && !value.starts_with(['/', '~', '.'])
        && !value.bytes().all(|byte| byte.is_ascii_digit())
}
